// Indexer: which compressed rows each token attends to (spec c.6). An index source scores all visible rows of its kv
// source; the layers above reuse its choice until the next index source.
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_INDEXER_H_
#define DEEPINFER_MODEL_INDEXER_H_

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

/// Fills the step's selection (and, in the candidate source, its candidate blocks). input [T, D], query_latent [T, Rq].
void SelectCompressedRows(StepContext& context, int layer, const IndexerWeights& weights, ConstFloatView input,
                          ConstFloatView query_latent);

/// The selection of the newest index source.
SelectedRows SelectionOf(const StepContext& context);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_INDEXER_H_

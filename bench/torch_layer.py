"""One layer of the release in plain PyTorch, from dequantised BF16 weights: what `deepinfer bench` is compared with.

The layer has the release's widths and the roles most layers have: hyper-connections, attention over a window of 128 and
512 selected rows, routed and shared experts. Left out, in PyTorch's favour: quantisation of activations, the indexer,
the compressor and Engram. Weights are random. Run: python3 bench/torch_layer.py [TOKENS...]
"""
import sys

import torch
import torch.nn.functional as F

D, STREAMS, HEADS, HEAD, ROPE, LORA = 5120, 4, 64, 512, 64, 1280
GROUPS, GROUP_OUT = 8, 1024
EXPERTS, PICKS, INNER = 384, 6, 2304
WINDOW, SELECTED = 128, 512
BF16 = dict(dtype=torch.bfloat16, device="cuda")


def weight(*shape):
    return torch.empty(*shape, **BF16).normal_(0, shape[-1] ** -0.5)


class Layer:
    def __init__(self):
        self.mix = [torch.randn((2 + STREAMS) * STREAMS, STREAMS * D, device="cuda") * 0.01 for _ in range(2)]
        self.norms = [torch.ones(D, **BF16) for _ in range(2)]
        self.wq_a, self.wq_b, self.wkv = weight(LORA, D), weight(HEADS * HEAD, LORA), weight(HEAD, D)
        self.wo_a, self.wo_b = weight(GROUPS, GROUP_OUT, HEADS * HEAD // GROUPS), weight(D, GROUPS * GROUP_OUT)
        self.sink = torch.zeros(HEADS, device="cuda")
        self.gate = weight(EXPERTS, D)
        self.w1, self.w3, self.w2 = (weight(EXPERTS, *s) for s in ((INNER, D), (INNER, D), (D, INNER)))
        self.shared = [weight(INNER, D), weight(INNER, D), weight(D, INNER)]

    def mixed(self, streams, fn):
        flat = streams.flatten(1)
        coefficients = (flat @ fn.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6)
        post = 2 * torch.sigmoid(coefficients[:, STREAMS : 2 * STREAMS])
        comb = torch.softmax(coefficients[:, 2 * STREAMS :].view(-1, STREAMS, STREAMS), -1)
        for _ in range(20):
            comb = comb / (comb.sum(1, keepdim=True) + 1e-6)
            comb = comb / (comb.sum(2, keepdim=True) + 1e-6)
        return torch.sigmoid(coefficients[:, :STREAMS]), post, comb

    def rotate(self, x, cos, sin):
        a, b = x[..., -ROPE::2], x[..., 1 - ROPE :: 2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        return torch.cat((x[..., :-ROPE], turned), -1)

    def attention(self, x, cache, rows, cos, sin):
        q = F.rms_norm(x @ self.wq_a.T, (LORA,)) @ self.wq_b.T
        q = self.rotate(q.view(-1, HEADS, HEAD), cos[:, None], sin[:, None])
        cache[: x.shape[0]] = self.rotate(F.rms_norm(x @ self.wkv.T, (HEAD,)), cos, sin)
        out = torch.empty_like(q)
        for first in range(0, x.shape[0], 256):  # the keys of 256 rows take 168 MB
            part = slice(first, first + 256)
            keys = cache[rows[part]]
            scores = torch.einsum("thd,tkd->thk", q[part], keys).float() * HEAD**-0.5
            sink = self.sink[None, :, None].expand(scores.shape[0], -1, 1)
            weights = torch.softmax(torch.cat((scores, sink), -1), -1)[..., :-1].bfloat16()
            out[part] = torch.einsum("thk,tkd->thd", weights, keys)
        out = self.rotate(out, cos[:, None], -sin[:, None]).view(-1, GROUPS, HEADS * HEAD // GROUPS)
        return torch.einsum("tgk,gok->tgo", out, self.wo_a).flatten(1) @ self.wo_b.T

    def swiglu(self, x, w1, w3, w2):
        gate, up = (x @ w1.T).clamp(max=10), (x @ w3.T).clamp(-10, 10)
        return (F.silu(gate) * up) @ w2.T

    def feed_forward(self, x):
        scores = F.softplus((x @ self.gate.T).float()).sqrt()
        weights, ids = scores.topk(PICKS, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).bfloat16()
        out = self.swiglu(x, *self.shared)
        order = ids.flatten().argsort()
        counts = torch.bincount(ids.flatten(), minlength=EXPERTS).tolist()
        first = 0
        for expert, count in enumerate(counts):
            if count == 0:
                continue
            slots = order[first : first + count]
            first += count
            tokens = slots // PICKS
            part = self.swiglu(x[tokens], self.w1[expert], self.w3[expert], self.w2[expert])
            out.index_add_(0, tokens, part * weights.flatten()[slots, None])
        return out

    def sublayer(self, streams, pre, which, function):
        next_pre, post, comb = self.mixed(streams, self.mix[which])
        collapsed = (pre[..., None] * streams).sum(1).bfloat16()
        y = function(F.rms_norm(collapsed, (D,), self.norms[which])).float()
        return torch.einsum("tij,tid->tjd", comb, streams) + post[..., None] * y[:, None], next_pre

    def run(self, streams, pre, cache, rows, cos, sin):
        streams, pre = self.sublayer(streams, pre, 0, lambda x: self.attention(x, cache, rows, cos, sin))
        return self.sublayer(streams, pre, 1, self.feed_forward)


@torch.inference_mode()
def main():
    layer = Layer()
    for tokens in [int(a) for a in sys.argv[1:]] or [1, 4096]:
        streams = torch.randn(tokens, STREAMS, D, device="cuda")
        pre = torch.full((tokens, STREAMS), 0.25, device="cuda")
        cache = weight(32768, HEAD)
        rows = torch.randint(0, 32768, (tokens, WINDOW + SELECTED), device="cuda")
        cos, sin = (torch.rand(tokens, ROPE // 2, **BF16) for _ in range(2))
        times = []
        for i in range(13):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            layer.run(streams, pre, cache, rows, cos, sin)
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        print(f"PyTorch {torch.__version__}, BF16, {tokens} tokens: {sorted(times[3:])[5]:.3f} ms a layer (median)")


if __name__ == "__main__":
    main()

#include "text/token_map.h"

namespace deepinfer {}

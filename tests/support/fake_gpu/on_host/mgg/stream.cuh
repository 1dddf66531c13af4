// What kernels/include/mgg/stream.cuh has, for the host.
#pragma once

namespace mgg {

template <typename T>
T load_once(const T *p) { return __ldg(p); }

}  // namespace mgg

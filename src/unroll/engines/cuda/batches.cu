// The tokens of one batch of M runs in one launch: batch *at of those whose windows' starts lie in `starts` [n, M, B].
//
// A run's train set is a part of its text, rotated: `places` [M, 4] has its length, where it begins, the length of the
// whole text, and where that lies among all texts. TOKEN, the type of an element of the text, is given at compilation.

extern "C" __global__ void gather(const TOKEN* text, const long long* places, const long long* starts, const bool* resets,
                                  const long long* at, int* inputs, int* targets, bool* reset, int B, int T, int K) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, M = gridDim.y;
    const int t = n / B, b = n % B, scored = t - (T + 1 - K);
    if (t > T) return;
    const size_t row = ((size_t)*at * M + m) * B + b;
    const long long train = places[4 * m], offset = places[4 * m + 1], total = places[4 * m + 2], base = places[4 * m + 3];
    const int token = (int)text[((starts[row] + t) % train + offset) % total + base];
    if (t < T) inputs[((size_t)m * T + t) * B + b] = token;
    if (scored >= 0) targets[((size_t)m * K + scored) * B + b] = token;
    if (t == 0) reset[m * B + b] = resets[row];
}

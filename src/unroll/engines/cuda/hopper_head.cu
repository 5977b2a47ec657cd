// The head in one launch each way, on Hopper: nothing that is as wide as the dense layer is read again, and of what is
// written only what the weights' gradients need is.
//
//   forward    s = h · W1 → bias, leaky ReLU, dropout → x;   logits = x · W2 → softmax, negative log-likelihood
//   backward   s = d_logits · W2ᵀ → leaky′, dropout → d_x;    d_h = d_x · W1ᵀ
//
// Both are the same: a warpgroup keeps 64 rows of what comes in (INNER wide) in registers, and goes through the dense
// layer CHUNK columns at a time: a first product, something pointwise, and a second product whose sums (OUTER wide) stay
// in registers to the end. What the first leaves in a thread is what the second wants to take from it. OUTER is 0 where
// those sums would not fit (d_h of many units): then there is no second product.
//
// GROUPS warpgroups share the weights, which travel through a ring of STAGES chunks in shared memory. They take turns at
// the matrix units: left alone they would all multiply at a time and then all do the pointwise part at a time.
//
// Threads keep the signs of what they made as bits, in their own order, and with dropout the masks; the way back reads
// those and not x.
//
// Columns are renumbered in groups of 32 (`real_column`), in all products alike, so that what is a thread's own of a
// group is 8 neighbours: 16 bytes of memory, and two whole draws of Philox.
//
// BACK, HIDDEN, SYMBOLS (a multiple of 32, up to 128), CHUNK, GROUPS, STAGES, OUTER, DROPS, LEAK are given at compilation.

#define INNER (BACK ? SYMBOLS : HIDDEN)
#define WARPS (4 * GROUPS)
#define THREADS (128 * GROUPS)
#define FIRST (INNER * CHUNK * 2)   // bytes of a chunk's weights: of the first product, of the second, and the bias
#define SECOND (CHUNK * OUTER * 2)
#define WEIGHTS (FIRST + SECOND + (BACK ? 0 : CHUNK * 4))
#define AHEAD (STAGES - 2)          // chunks that are fetched early
#define SUMS (OUTER ? OUTER / 2 : 1)

// Which column the matrix units' column n is: a thread has n = 8j + 2c + {0, 1} for all j, so its columns of a group are
// 8c … 8c + 7.
__device__ __forceinline__ int real_column(int n) { return n / 32 * 32 + n % 8 / 2 * 8 + n / 8 % 4 * 2 + n % 2; }

// --- who owns what, and the walk through the dense layer ---------------------------------------------------------------------

struct Place {
    int run, tile, thread, lane, warp, inner, N, row0;
    __device__ Place(int N) : N(N) {
        run = blockIdx.y; thread = threadIdx.x; lane = thread % 32; warp = thread / 32;
        tile = blockIdx.x * GROUPS + thread / 128;                 // of 64 rows
        row0 = tile * 64 + warp % 4 * 16 + lane / 4;
        inner = lane % 4;                                          // which 8 of 32 columns
    }
    __device__ int row(int half) const { return row0 + 8 * half; }
    __device__ bool has(int half) const { return row(half) < N; }
    __device__ size_t at(int half) const { return (size_t)run * N + min(row(half), N - 1); }
    // Where the bits of this thread's first 64 columns are; those of the next 64 come 128 words later.
    __device__ size_t bits(int D) const {
        const int tiles = (N + 63) / 64;
        return ((size_t)run * tiles + min(tile, tiles - 1)) * (D / 64) * 128 + thread % 128;
    }
    __device__ bool has_bits() const { return tile * 64 < N; }
};

// A word has a bit for each of a thread's elements in 64 columns: word i of row `half` in group g is two of them.
__device__ __forceinline__ int bit(int g, int half, int k) { return (g * 2 + half) * 4 + k / 2 + 16 * (k % 2); }
// All ones in each half of a word that is above 0.
__device__ __forceinline__ u32 above_zero(u32 pair) {
    u32 mask;
    asm("set.gt.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(pair), "r"(0u));
    return mask;
}

// Warpgroup after warpgroup; each lets the next one on as soon as it has issued its products.
__device__ __forceinline__ void turn_wait(int group) { asm volatile("bar.sync %0, 256;" :: "r"(1 + group) : "memory"); }
__device__ __forceinline__ void turn_pass(int group) { asm volatile("bar.arrive %0, 256;" :: "r"(1 + group) : "memory"); }

// A row's 8 columns of group g are word i's two, i = 0 … 3. As sums of a product, as the factors of the next one, as they come.
__device__ __forceinline__ int sum(int g, int half, int k) { return (4 * g + k / 2) * 4 + 2 * half + k % 2; }
template <int COUNT> __device__ __forceinline__ void put(u32 (&a)[COUNT][4], int g, int half, const Quad& q) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[2 * g + i / 2][i % 2 * 2 + half] = q.w[i];
}

// The first chunks are on their way before anything else is done.
__device__ __forceinline__ void begin(const Place& me, unsigned char* shared, const unsigned char* weights, int chunks) {
    const u32 full = address(shared), empty = full + 8 * STAGES, ring = full + 128;
    if (me.thread == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            gate_init(full + 8 * stage, 1);
            gate_init(empty + 8 * stage, WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
        for (int c = 0; c < AHEAD && c < chunks; ++c) fetch(ring + c * WEIGHTS, weights + (size_t)c * WEIGHTS, WEIGHTS, full + 8 * c);
    }
}

// between(c, s, x, bias) makes x, the factors of the second product, from s, the sums of the first.
template <typename Between>
__device__ __forceinline__ void walk(const Place& me, unsigned char* shared, const unsigned char* weights, int chunks,
                                     const u32 (&a)[INNER / 16][4], float (&sums)[SUMS], Between between) {
    const u32 full = address(shared), empty = full + 8 * STAGES, ring = full + 128;
    __syncthreads();  // the gates are there
#pragma unroll
    for (int v = 0; v < SUMS; ++v) sums[v] = 0.0f;
    u32 x[CHUNK / 16][4];
    const int group = me.thread / 128;
    if (GROUPS > 1 && group == GROUPS - 1) turn_pass(0);
    float s[CHUNK / 2];
    auto first = [&](int c) {
        const u32 from = operand(ring + c % STAGES * WEIGHTS, CHUNK);
#pragma unroll
        for (int k = 0; k < INNER / 16; ++k) multiply<CHUNK>(s, a[k], from + k * 2 * CHUNK, k);
    };
    auto second = [&](int c) {
        const u32 from = operand(ring + c % STAGES * WEIGHTS + FIRST, OUTER);
#pragma unroll
        for (int k = 0; k < (OUTER ? CHUNK / 16 : 0); ++k) multiply<OUTER>(sums, x[k], from + k * 2 * OUTER, 1);
    };
    gate_wait(full, 0);
    if (GROUPS > 1) turn_wait(group);
    product_begins();
    first(0);
    product_issued();
    if (GROUPS > 1 && (group < GROUPS - 1 || chunks > 1)) turn_pass((group + 1) % GROUPS);  // nobody waits for the last
    product_done(s);
#pragma unroll 1
    for (int c = 0;; ++c) {
        // Into the place of a chunk that the slowest warpgroup has long left behind.
        if (me.thread == 0 && c + AHEAD < chunks) {
            const int next = c + AHEAD, there = next % STAGES;
            if (next >= STAGES) gate_wait(empty + 8 * there, (next / STAGES - 1) & 1);
            fetch(ring + there * WEIGHTS, weights + (size_t)next * WEIGHTS, WEIGHTS, full + 8 * there);
        }
        const u32 gate = full + 8 * ((c + 1) % STAGES), parity = ((c + 1) / STAGES) & 1, open = gate_open(gate, parity);
        between(c, s, x, (const float*)(shared + 128 + c % STAGES * WEIGHTS + FIRST + SECOND));
        if (c + 1 == chunks) break;
        if (!open) gate_wait(gate, parity);
        if (GROUPS > 1) turn_wait(group);
        product_begins();
        second(c);
        first(c + 1);
        product_issued();
        if (GROUPS > 1 && (group < GROUPS - 1 || c + 2 < chunks)) turn_pass((group + 1) % GROUPS);
        product_done(s);
        if (me.lane == 0) gate_arrive(empty + 8 * (c % STAGES));
    }
    if (OUTER) {
        product_begins();
        second(chunks - 1);
        product_issued();
        product_done(sums);
    }
}

__device__ __forceinline__ float over_row(float v, bool largest) {
#pragma unroll
    for (int s = 1; s <= 2; s *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, v, s);
        v = largest ? fmaxf(v, other) : v + other;
    }
    return v;
}

#if !BACK

#define LOG2_E 1.44269504f
__device__ __forceinline__ float power_of_two(float v) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
    return y;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
head_forward(const bf16* h, const unsigned char* weights, const float* out_b, const int* targets, const float* rates,
        const int* keys, const long long* batch, int purpose, float* nll, bf16* x, bf16* wrong, u32* positive, u32* kept,
        int stride, int width, int N, int D, int V) {
    extern __shared__ __align__(128) unsigned char shared[];
    const Place me(N);
    weights += (size_t)me.run * (D / CHUNK) * WEIGHTS;
    begin(me, shared, weights, D / CHUNK);
    u32 a[INNER / 16][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const bf16* const from = h + (size_t)me.run * stride + (size_t)min(me.row(half), N - 1) * width + 8 * me.inner;
#pragma unroll
        for (int g = 0; g < INNER / 32; ++g) {
            const Quad q = *(const Quad*)(from + 32 * g);
            put(a, g, half, q);
        }
    }
    // What is needed last waits in shared memory.
    float* const own_b = (float*)(shared + 128 + STAGES * WEIGHTS);
    int* const own_targets = (int*)(own_b + SYMBOLS);
    if (me.thread < SYMBOLS) own_b[me.thread] = me.thread < V ? out_b[me.run * V + me.thread] : __int_as_float(0xff800000);
    if (me.thread < 64 * GROUPS)
        own_targets[me.thread] = targets[(size_t)me.run * N + min((int)blockIdx.x * 64 * GROUPS + me.thread, N - 1)];
#if DROPS
    const float rate = rates[me.run], scale = 1.0f / (1.0f - rate);
    const u32 least = (u32)ceil((double)rate * 4294967296.0), number = (u32)*batch;
    const u32 key0 = keys[2 * me.run], key1 = keys[2 * me.run + 1];
    u32 mask = 0;
    kept += me.bits(D);
#endif
    u32 signs = 0;
    positive += me.bits(D);
    bf16* row = x + ((size_t)me.run * N + me.row(0)) * D + 8 * me.inner;
    const bool keeps[2] = {x && me.has(0), x && me.has(1)};

    float logits[SUMS];
    walk(me, shared, weights, D / CHUNK, a, logits,
         [&](int c, float (&s)[CHUNK / 2], u32 (&made)[CHUNK / 16][4], const float* bias) {
        const int odd = c * CHUNK % 64 / 32;  // of chunks of 32, which half of the bits is this one's
        if (!odd) signs = 0;
#if DROPS
        if (!odd) mask = 0;
#endif
#pragma unroll
        for (int g = 0; g < CHUNK / 32; ++g) {
            float b[8];
            *(Four*)b = *(const Four*)(bias + 32 * g + 8 * me.inner);
            *(Four*)(b + 4) = *(const Four*)(bias + 32 * g + 8 * me.inner + 4);
            u32 own_signs = 0;
#if DROPS
            u32 own_mask = 0;
#endif
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float v[8];
#pragma unroll
                for (int k = 0; k < 8; ++k) {
                    v[k] = s[sum(g, half, k)] + b[k];
                    v[k] = v[k] > 0.0f ? v[k] : LEAK * v[k];
                }
#if DROPS
                if (rate > 0.0f) {
                    const u32 first = (u32)(me.row(half) * D + c * CHUNK + 32 * g + 8 * me.inner) / 4;
#pragma unroll
                    for (int draw = 0; draw < 2; ++draw) {
                        const Words r = philox(first + draw, number, (u32)purpose, key0, key1);
#pragma unroll
                        for (int k = 0; k < 4; ++k) {
                            const bool stays = r.w[k] >= least;
                            v[4 * draw + k] *= stays ? scale : 0.0f;
                            own_mask |= stays ? 1u << bit(g, half, 4 * draw + k) : 0u;
                        }
                    }
                } else {
#pragma unroll
                    for (int k = 0; k < 8; ++k) own_mask |= 1u << bit(g, half, k);
                }
#endif
                const Quad q = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
                put(made, g, half, q);
#pragma unroll
                for (int i = 0; i < 4; ++i) own_signs |= above_zero(q.w[i]) & (0x00010001u << bit(g, half, 2 * i));
                store_if(keeps[half], row + 8 * half * D + 32 * g, q);
            }
            signs |= own_signs << 8 * odd;
#if DROPS
            mask |= own_mask << 8 * odd;
#endif
        }
        row += CHUNK;
        if (x && me.has_bits() && (CHUNK == 64 || odd)) {
            positive[c * CHUNK / 64 * 128] = signs;
#if DROPS
            kept[c * CHUNK / 64 * 128] = mask;
#endif
        }
    });

#pragma unroll
    for (int g = 0; g < SYMBOLS / 32; ++g)
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const float b = own_b[32 * g + 8 * me.inner + k];
            logits[sum(g, 0, k)] += b;
            logits[sum(g, 1, k)] += b;
        }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const size_t at = me.at(half);
        const int target = own_targets[me.row(half) - (int)blockIdx.x * 64 * GROUPS] - 8 * me.inner;
        float top = logits[sum(0, half, 0)], own = 0.0f, total = 0.0f;
#pragma unroll
        for (int n = 0; n < SYMBOLS / 4; ++n) top = fmaxf(top, logits[sum(n / 8, half, n % 8)]);
        top = over_row(top, true);
        const float shift = -top * LOG2_E;
#pragma unroll
        for (int n = 0; n < SYMBOLS / 4; ++n) {
            float& v = logits[sum(n / 8, half, n % 8)];
            if (target == n / 8 * 32 + n % 8) own = v;
            v = power_of_two(fmaf(v, LOG2_E, shift));  // exp(v − top)
            total += v;
        }
        total = over_row(total, false);
        own = over_row(own, false);
        if (me.inner == 0 && me.has(half)) nll[at] = top + logf(total) - own;
        if (!x || !me.has(half)) continue;
        const float share = 1.0f / total;
#pragma unroll
        for (int g = 0; g < SYMBOLS / 32; ++g) {
            float v[8];
#pragma unroll
            for (int k = 0; k < 8; ++k) v[k] = logits[sum(g, half, k)] * share - (target == 32 * g + k ? 1.0f : 0.0f);
            const Quad q = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
            *(Quad*)(wrong + at * SYMBOLS + 32 * g + 8 * me.inner) = q;
        }
    }
}

#else

// 8 columns over the 16 rows of a warp; column 8 · inner + `which` of 32 is left to a lane.
__device__ __forceinline__ float over_rows(const float (&v)[8], int lane, int& which) {
    const bool c = lane & 16, b = lane & 8, a = lane & 4;
    float four[4], two[2];
#pragma unroll
    for (int k = 0; k < 4; ++k) four[k] = (c ? v[4 + k] : v[k]) + __shfl_xor_sync(0xffffffffu, c ? v[k] : v[4 + k], 16);
#pragma unroll
    for (int k = 0; k < 2; ++k) two[k] = (b ? four[2 + k] : four[k]) + __shfl_xor_sync(0xffffffffu, b ? four[k] : four[2 + k], 8);
    which = 4 * c + 2 * b + a;
    return (a ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, a ? two[0] : two[1], 4);
}

// Sums over a block's rows of d_x and of d_logits go to d_b [M, blocks, D + SYMBOLS], to be added up later.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
head_backward(const bf16* wrong, const float* d, const unsigned char* weights, const float* rates, const u32* positive,
         const u32* kept, bf16* d_logits, bf16* d_x, bf16* d_h, float* d_b, int N, int D) {
    extern __shared__ __align__(128) unsigned char shared[];
    const Place me(N);
    weights += (size_t)me.run * (D / CHUNK) * WEIGHTS;
    begin(me, shared, weights, D / CHUNK);
    float* const own_sums = (float*)(shared + 128 + STAGES * WEIGHTS) + me.warp * (D + SYMBOLS);
    u32 a[INNER / 16][4];
    const float up[2] = {me.has(0) ? d[me.at(0)] : 0.0f, me.has(1) ? d[me.at(1)] : 0.0f};
    Quad given[SYMBOLS / 32][2];  // all on their way before the first is used
#pragma unroll
    for (int g = 0; g < SYMBOLS / 32; ++g)
#pragma unroll
        for (int half = 0; half < 2; ++half) given[g][half] = *(const Quad*)(wrong + me.at(half) * SYMBOLS + 32 * g + 8 * me.inner);
    // Bits come from far: all of them now into the second-level cache, and from there a chunk early.
    auto approach = [&](const u32* bits) {
        for (int n = me.thread % 128 * 32; n < D / 64 * 128; n += 128 * 32)
            asm volatile("prefetch.global.L2 [%0];" :: "l"(bits - me.thread % 128 + n));
    };
    positive += me.bits(D);
    approach(positive);
#if DROPS
    const float rate = rates[me.run], scale = 1.0f / (1.0f - rate);
    kept += me.bits(D);
    approach(kept);
#endif
#pragma unroll
    for (int g = 0; g < SYMBOLS / 32; ++g) {
        float total[8];
        int which;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const size_t at = me.at(half) * SYMBOLS + 32 * g + 8 * me.inner;
            Quad q = given[g][half];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                // Rows that are not there have a gradient of 0, whatever the last row, which stands in for them, has.
                const float first = me.has(half) ? low(q.w[i]) * up[half] : 0.0f;
                const float second = me.has(half) ? high(q.w[i]) * up[half] : 0.0f;
                total[2 * i] = half ? total[2 * i] + first : first;
                total[2 * i + 1] = half ? total[2 * i + 1] + second : second;
                q.w[i] = pack(first, second);
            }
            put(a, g, half, q);
            if (me.has(half)) *(Quad*)(d_logits + at) = q;
        }
        const float all = over_rows(total, me.lane, which);
        own_sums[D + 32 * g + 8 * me.inner + which] = all;
    }
    u32 next_signs = load(positive);
#if DROPS
    u32 next_mask = load(kept);
#endif
    bf16* row = d_x + ((size_t)me.run * N + me.row(0)) * D + 8 * me.inner;

    float sums[SUMS];
    walk(me, shared, weights, D / CHUNK, a, sums,
         [&](int c, float (&s)[CHUNK / 2], u32 (&made)[CHUNK / 16][4], const float*) {
        const int next = min(c + 1, D / CHUNK - 1) * 128;
        const u32 signs = next_signs;
        next_signs = load(positive + next);
#if DROPS
        const u32 mask = next_mask;
        next_mask = load(kept + next);
#endif
#pragma unroll
        for (int g = 0; g < CHUNK / 32; ++g) {
            float total[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float v[8];
#pragma unroll
                for (int k = 0; k < 8; ++k) {
                    v[k] = s[sum(g, half, k)];
                    v[k] = signs >> bit(g, half, k) & 1 ? v[k] : LEAK * v[k];
#if DROPS
                    v[k] *= mask >> bit(g, half, k) & 1 ? scale : 0.0f;
#endif
                    total[k] = half ? total[k] + v[k] : v[k];
                }
                const Quad q = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
                put(made, g, half, q);
                store_if(me.has(half), row + 8 * half * D + 32 * g, q);
            }
            int which;
            const float all = over_rows(total, me.lane, which);
            own_sums[c * CHUNK + 32 * g + 8 * me.inner + which] = all;
        }
        row += CHUNK;
    });

#if OUTER
#pragma unroll
    for (int g = 0; g < HIDDEN / 32; ++g)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float v[8];
#pragma unroll
            for (int k = 0; k < 8; ++k) v[k] = sums[sum(g, half, k)];
            const Quad q = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
            if (me.has(half)) *(Quad*)(d_h + me.at(half) * HIDDEN + 32 * g + 8 * me.inner) = q;
        }
#endif
    __syncthreads();
    const float* const warp_sums = (const float*)(shared + 128 + STAGES * WEIGHTS);
    d_b += ((size_t)me.run * gridDim.x + blockIdx.x) * (D + SYMBOLS);
    for (int n = me.thread; n < D + SYMBOLS; n += THREADS) {
        float total = 0.0f;
        for (int warp = 0; warp < WARPS; ++warp) total += warp_sums[warp * (D + SYMBOLS) + n];
        d_b[n] = total;
    }
}

// Those sums of all blocks of a run.
extern "C" __global__ void add_up(const float* d_b, float* d_dense_b, float* d_out_b, int blocks, int D, int V) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x, run = blockIdx.y;
    if (n >= D + V) return;
    float total = 0.0f;
#pragma unroll 8
    for (int block = 0; block < blocks; ++block) total += d_b[((size_t)run * blocks + block) * (D + SYMBOLS) + n];
    if (n < D) d_dense_b[(size_t)run * D + n] = total;
    else d_out_b[(size_t)run * V + n - D] = total;
}

#endif

// --- weights, in the order in which the ring carries them: of each chunk first, second, bias ----------------------------------

#if BACK

// Both products go along the rows of a matrix here: a thread takes 32 neighbours of one, and makes four quads of them.
extern "C" __global__ void arrange(const float* dense_W, const float* dense_b, const float* out_W, Quad* to, int D, int V) {
    const int run = blockIdx.y, each = WEIGHTS / 64, place = blockIdx.x * blockDim.x + threadIdx.x;
    const int chunk = place / each, n = place % each, base = chunk * CHUNK;
    if (base >= D) return;
    const bool second = n >= FIRST / 64;
    const int width = second ? max(OUTER, 1) : CHUNK, own = second ? n - FIRST / 64 : n;
    const int column = real_column(own % width), along = own / width * 32;
    float v[32];
    if (second || V % 4 == 0) {
        const float* const row = second ? dense_W + ((size_t)run * HIDDEN + column) * D + base + along
                                        : out_W + ((size_t)run * D + base + column) * V + along;
#pragma unroll
        for (int k = 0; k < 32; k += 4)
            *(Four*)(v + k) = second || along + k < V ? *(const Four*)(row + k) : Four{{0.0f, 0.0f, 0.0f, 0.0f}};
    } else {
        const float* const row = out_W + ((size_t)run * D + base + column) * V;
#pragma unroll
        for (int k = 0; k < 32; ++k) v[k] = along + k < V ? row[along + k] : 0.0f;
    }
    to += ((size_t)run * (D / CHUNK) + chunk) * (WEIGHTS / 16) + (second ? FIRST / 16 : 0) + own / width * 4 * width + own % width;
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // as real_column numbers them
        const float* const p = v + 2 * j;
        to[j * width] = {pack(p[0], p[1]), pack(p[8], p[9]), pack(p[16], p[17]), pack(p[24], p[25])};
    }
}

#else

extern "C" __global__ void arrange(const float* dense_W, const float* dense_b, const float* out_W, Quad* to, int D, int V) {
    const int run = blockIdx.y, each = WEIGHTS / 16, place = blockIdx.x * blockDim.x + threadIdx.x;
    const int chunk = place / each, n = place % each, base = chunk * CHUNK;
    if (base >= D) return;
    auto dense = [&](int unit, int column) { return dense_W[((size_t)run * HIDDEN + unit) * D + base + column]; };
    auto out = [&](int column, int symbol) {
        return symbol < V ? out_W[((size_t)run * D + base + column) * V + symbol] : 0.0f;
    };
    Quad q;
    if (n < (FIRST + SECOND) / 16) {
        const bool second = n >= FIRST / 16;
        const int width = second ? max(OUTER, 1) : CHUNK, own = second ? n - FIRST / 16 : n;
        const int column = real_column(own % width);
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const int along = real_column(own / width * 8 + k);
            v[k] = second ? out(along, column) : dense(along, column);
        }
        q = {pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])};
    } else {
#pragma unroll
        for (int k = 0; k < 4; ++k)
            q.w[k] = __float_as_uint(dense_b[(size_t)run * D + base + (n - (FIRST + SECOND) / 16) * 4 + k]);
    }
    to[(size_t)run * (D / CHUNK) * each + place] = q;
}

#endif

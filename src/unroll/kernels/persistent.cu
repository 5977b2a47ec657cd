// One recurrent layer over all its time steps in one launch. Recurrent weights stay in registers from the first step to
// the last; one cluster of BLOCKS thread blocks serves ROWS rows of one run, and block r of it owns UNITS hidden units.
//
// The products are done transposed, D[gate column, row] = W_h^T · h^T, so that the weights are the operand that a matrix
// instruction may take from registers. The 16 gate columns of a warp's tile are 4 units x 4 gates: with one exchange
// between two lanes a thread holds all four gates of a unit, and the cell's pointwise part needs no shared memory.
//
// Between two steps the blocks exchange what they made, through each other's shared memory, with no barrier of the whole
// cluster: a block waits for its own mailbox to fill. Two mailboxes take turns. A sender cannot run ahead into a mailbox
// that is still being read: to be there it must have received what its reader sends only after reading.
//
//   forward    h of all units to all blocks            (each block needs the whole h for its gate columns)
//   backward   partial sums of dh to the units' owners  (each block has the gradients of its own gate columns alone)
//
// HIDDEN, TILES (matrix tiles a warpgroup), ROWS and CELL are given at compilation. Layouts shared with persistent.py:
//
//   pre_x     [M, I, HIDDEN] float4, the gates of a unit side by side (the GRU's candidate last); row ids[m, t, b], or row t·B + b without ids
//   h         [M, T + 1, B, HIDDEN] bfloat16; step 0 is the first state
//   d_gates   [M, T, B, HIDDEN, 4] bfloat16
//   saved     whatever a thread will want back, in its own order: 4 values an element, and the state in float32

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;

#define PAPER 0
#define LASAGNE 1
#define OFF 2
#define GRU 3

#define UNITS (32 * TILES)
#define BLOCKS (HIDDEN / UNITS)
#define KSTEPS (HIDDEN / 16)         // forward: 16 units of h an instruction
#define BACK_KSTEPS (8 * TILES)      // backward: 16 of the block's own gate columns
#define BACK_TILES (HIDDEN / 128)    // tiles of 64 units a warpgroup
#define PAIRS (ROWS / 16)
#define THREADS 256
#define SLICE (UNITS * ROWS * 2)     // bytes that one block sends to another

struct __align__(16) Quad { u32 x, y, z, w; };
struct __align__(16) Gates { float i, f, g, o; };
struct __align__(8) Two { float a, b; };

// --- small instructions ------------------------------------------------------------------------------------------------

__device__ __forceinline__ float tanh_(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float sigmoid(float x) { return fmaf(0.5f, tanh_(0.5f * x), 0.5f); }
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ float widen(bf16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ float clipped(float x, float limit) {
    // A NaN must stay one: it is how a run that diverges is noticed.
    return x > limit ? limit : (x < -limit ? -limit : x);
}
__device__ __forceinline__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ u32 at_block(u32 own, u32 block) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(block));
    return there;
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- mailboxes -----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void mailbox_init(u32 box) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(box) : "memory");
}
__device__ __forceinline__ void mailbox_expect(u32 box, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(box), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mailbox_wait(u32 box, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" :: "r"(box), "r"(parity) : "memory");
}
__device__ __forceinline__ void send(u32 to, u32 from, u32 bytes, u32 box) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(to), "r"(from), "r"(bytes), "r"(box) : "memory");
}

// --- matrix products: 64 columns of D a warpgroup, weights from registers, the other operand from shared memory -----------

__device__ __forceinline__ u64 operand(u32 shared) {
    // No swizzle: blocks of 8 rows x 16 bytes; 128 bytes to the next 8 rows, ROWS · 16 to the next 8 of the inner axis.
    return ((u64)(shared >> 4) & 0x3fff) | ((u64)ROWS << 16) | ((u64)8 << 32);
}
__device__ __forceinline__ void product_begins() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void product_ends() {
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#if ROWS == 64
__device__ __forceinline__ void multiply(float (&d)[32], const u32 (&a)[4], u64 b, int add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31}, {%32,%33,%34,%35}, %36, add, 1, 1, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#else
__device__ __forceinline__ void multiply(float (&d)[8], const u32 (&a)[4], u64 b, int add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, add, 1, 1, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#endif

// --- who owns what -------------------------------------------------------------------------------------------------------

struct Place {
    int run, tile, block, thread, lane, group, warp, quarter, upper, inner, row0;
    __device__ Place(int B) {
        run = blockIdx.z; tile = blockIdx.y; block = blockIdx.x; thread = threadIdx.x;
        lane = thread & 31; group = thread >> 7; warp = (thread >> 5) & 3;
        quarter = (lane >> 2) & 3;      // which of the warp's 4 units
        upper = lane >> 4;              // which 8 of 16 rows are this thread's
        inner = lane & 3;               // which 2 of those 8
        row0 = tile * ROWS;
    }
    __device__ int unit(int i) const { return ((i * 2 + group) * 4 + warp) * 4 + quarter; }  // within the block
    __device__ int row(int p, int s) const { return 16 * p + 8 * upper + 2 * inner + s; }     // within the tile
};

// --- the cells' pointwise parts --------------------------------------------------------------------------------------------

struct Peepholes { float i, f, o; };

// From the four sums of a unit to its next state; `kept` is what the way back needs.
__device__ __forceinline__ float step(const Gates& x, const Gates& a, float& state, const Peepholes& w, Gates& kept) {
#if CELL == GRU
    float r = sigmoid(x.i + a.i), u = sigmoid(x.f + a.f);
    float candidate = tanh_(fmaf(r, a.g, x.o));
    kept.i = r; kept.f = u; kept.g = candidate; kept.o = a.g;
    state = fmaf(u, candidate - state, state);
    return state;
#else
    float c = state, a_i = x.i + a.i, a_f = x.f + a.f, a_o = x.o + a.o;
#if CELL != OFF
    a_i = fmaf(w.i, c, a_i);
    a_f = fmaf(w.f, c, a_f);
#endif
    float i = sigmoid(a_i), f = sigmoid(a_f), g = tanh_(x.g + a.g);
    state = fmaf(f, c, i * g);
#if CELL == PAPER
    a_o = fmaf(w.o, c, a_o);
#elif CELL == LASAGNE
    a_o = fmaf(w.o, state, a_o);
#endif
    float o = sigmoid(a_o);
    kept.i = i; kept.f = f; kept.g = g; kept.o = o;
    return o * tanh_(state);
#endif
}

// The chain rule through it: d_h in, the four gates' gradients out, d_state taken back by one step.
__device__ __forceinline__ Gates step_back(float d_h, float& d_state, const Gates& k, float after, float before,
                                           const Peepholes& w, Peepholes& d_w, float clip) {
    Gates d;
#if CELL == GRU
    d_h += d_state;
    float d_c = clipped(d_h * k.f * (1.0f - k.g * k.g), clip);
    d.i = clipped(d_c * k.o * (k.i * (1.0f - k.i)), clip);
    d.f = clipped(d_h * (k.g - before) * (k.f * (1.0f - k.f)), clip);
    d.g = d_c * k.i;  // towards h·W_h, behind the reset gate
    d.o = d_c;        // towards the input
    d_state = d_h * (1.0f - k.f);
#else
    float t = tanh_(after);
    d.o = d_h * t * (k.o * (1.0f - k.o));
    float d_c = fmaf(d_h * k.o, 1.0f - t * t, d_state);
#if CELL == LASAGNE
    d_c = fmaf(d.o, w.o, d_c);
#endif
    d.i = d_c * k.g * (k.i * (1.0f - k.i));
    d.f = d_c * before * (k.f * (1.0f - k.f));
    d.g = d_c * k.i * (1.0f - k.g * k.g);
    d_state = d_c * k.f;
#if CELL != OFF
    d_state = fmaf(d.i, w.i, fmaf(d.f, w.f, d_state));
    d_w.i = fmaf(d.i, before, d_w.i);
    d_w.f = fmaf(d.f, before, d_w.f);
#if CELL == PAPER
    d_state = fmaf(d.o, w.o, d_state);
    d_w.o = fmaf(d.o, before, d_w.o);
#else
    d_w.o = fmaf(d.o, after, d_w.o);
#endif
#endif
    d.i = clipped(d.i, clip); d.f = clipped(d.f, clip); d.g = clipped(d.g, clip); d.o = clipped(d.o, clip);
#endif
    return d;
}

__device__ __forceinline__ Peepholes peepholes(const float* w_c, int run, int unit) {
    Peepholes w = {0.0f, 0.0f, 0.0f};
#if CELL == PAPER || CELL == LASAGNE
    w.i = w_c[(run * 3 + 0) * HIDDEN + unit];
    w.f = w_c[(run * 3 + 1) * HIDDEN + unit];
    w.o = w_c[(run * 3 + 2) * HIDDEN + unit];
#endif
    return w;
}

// --- forward -------------------------------------------------------------------------------------------------------------

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
forward(const Quad* weights, const Gates* pre_x, const int* ids, const float* w_c, const float* h_first,
        const float* state_first, const int* at, bf16* h, Quad* saved, Two* saved_state, float* h_at, float* state_at,
        int I, int T, int B) {
    extern __shared__ __align__(128) unsigned char shared[];
    u64* boxes = (u64*)shared;
    unsigned char* mail = shared + 128;  // two of HIDDEN · ROWS bfloat16, as `operand` wants them
    const u32 mail_bytes = HIDDEN * ROWS * 2;
    const Place me(B);
    const int first_unit = me.block * UNITS;

    u32 a[TILES][KSTEPS][4];
#pragma unroll
    for (int k = 0; k < KSTEPS; ++k)
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            Quad q = weights[(((size_t)me.run * BLOCKS + me.block) * KSTEPS + k) * TILES * THREADS + i * THREADS + me.thread];
            a[i][k][0] = q.x; a[i][k][1] = q.y; a[i][k][2] = q.z; a[i][k][3] = q.w;
        }

    // The first h: all units into the first mailbox, the block's own also into step 0 of the output.
    for (int n = me.thread; n < HIDDEN / 8 * ROWS; n += THREADS) {
        int group = n / ROWS, row = n % ROWS, b = min(me.row0 + row, B - 1);
        const float* from = h_first + ((size_t)me.run * B + b) * HIDDEN + group * 8;
        Quad q = {pack(from[0], from[1]), pack(from[2], from[3]), pack(from[4], from[5]), pack(from[6], from[7])};
        *(Quad*)(mail + n * 16) = q;
        if (group / (UNITS / 8) == me.block && me.row0 + row < B)
            *(Quad*)(h + (((size_t)me.run * (T + 1)) * B + b) * HIDDEN + group * 8) = q;
    }
    float state[TILES][PAIRS][2];
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        int unit = first_unit + me.unit(i);
#pragma unroll
        for (int p = 0; p < PAIRS; ++p)
#pragma unroll
            for (int s = 0; s < 2; ++s)
                state[i][p][s] = state_first[((size_t)me.run * B + min(me.row0 + me.row(p, s), B - 1)) * HIDDEN + unit];
    }
    if (me.thread == 0) {
        mailbox_init(address(boxes));
        mailbox_init(address(boxes + 1));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if (BLOCKS > 1) {
            mailbox_expect(address(boxes), (BLOCKS - 1) * SLICE);
            mailbox_expect(address(boxes + 1), (BLOCKS - 1) * SLICE);
        }
    }
    publish();
    if (BLOCKS > 1) cluster_sync(); else __syncthreads();

    const int kept_at = at ? at[me.run] : 0;
    for (int t = 0; t < T; ++t) {
        int where[PAIRS][2];
#pragma unroll
        for (int p = 0; p < PAIRS; ++p)
#pragma unroll
            for (int s = 0; s < 2; ++s) {
                int b = min(me.row0 + me.row(p, s), B - 1), n = t * B + b;
                where[p][s] = me.run * I + (ids ? ids[(size_t)me.run * T * B + n] : n);
            }
        if (BLOCKS > 1 && t > 0) {
            mailbox_wait(address(boxes + (t & 1)), ((t - 1) >> 1) & 1);
            if (me.thread == 0) mailbox_expect(address(boxes + (t & 1)), (BLOCKS - 1) * SLICE);
        }
        unsigned char* read = mail + (t & 1) * mail_bytes;
        unsigned char* write = mail + ((t + 1) & 1) * mail_bytes;
        const u64 from = operand(address(read));
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const int own = me.unit(i), unit = first_unit + own;
            const Peepholes w = peepholes(w_c, me.run, unit);
            float d[ROWS / 2];
            product_begins();
#pragma unroll
            for (int k = 0; k < KSTEPS; ++k) multiply(d, a[i][k], from + (u64)(k * 2 * ROWS), k);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            Gates x[PAIRS][2];  // asked for while the product runs
#pragma unroll
            for (int p = 0; p < PAIRS; ++p)
#pragma unroll
                for (int s = 0; s < 2; ++s) x[p][s] = pre_x[(size_t)where[p][s] * HIDDEN + unit];
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int n = 0; n < ROWS / 2; ++n) asm volatile("" : "+f"(d[n]) :: "memory");
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) {
                float mine[4], theirs[4];
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    mine[v] = me.upper ? d[8 * p + 4 + v] : d[8 * p + v];
                    theirs[v] = __shfl_xor_sync(0xffffffffu, me.upper ? d[8 * p + v] : d[8 * p + 4 + v], 16);
                }
                u32 kept[4];
                float after[2];
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    Gates sums, keep;
                    sums.i = me.upper ? theirs[s] : mine[s];
                    sums.f = me.upper ? mine[s] : theirs[s];
                    sums.g = me.upper ? theirs[2 + s] : mine[2 + s];
                    sums.o = me.upper ? mine[2 + s] : theirs[2 + s];
                    float out = step(x[p][s], sums, state[i][p][s], w, keep);
                    after[s] = out;
                    kept[2 * s] = pack(keep.i, keep.f);
                    kept[2 * s + 1] = pack(keep.g, keep.o);
                    u32 rounded = pack(out, out);
                    *(bf16*)(write + ((size_t)((unit >> 3) * ROWS + me.row(p, s)) * 8 + (unit & 7)) * 2) = (bf16)rounded;
                }
                if (saved) {
                    size_t n = ((((((size_t)me.run * gridDim.y + me.tile) * T + t) * BLOCKS + me.block) * TILES + i) * PAIRS + p)
                                   * THREADS + me.thread;
                    Quad q = {kept[0], kept[1], kept[2], kept[3]};
                    Two st = {state[i][p][0], state[i][p][1]};
                    saved[n] = q;
                    saved_state[n] = st;
                }
                if (t + 1 == kept_at)
#pragma unroll
                    for (int s = 0; s < 2; ++s) {
                        int b = me.row0 + me.row(p, s);
                        if (b < B) {
                            h_at[((size_t)me.run * B + b) * HIDDEN + unit] = after[s];
                            state_at[((size_t)me.run * B + b) * HIDDEN + unit] = state[i][p][s];
                        }
                    }
            }
        }
        publish();
        __syncthreads();
        if (BLOCKS > 1 && t + 1 < T && me.thread < BLOCKS && me.thread != me.block) {
            u32 slice = address(write) + me.block * SLICE;
            send(at_block(slice, me.thread), slice, SLICE, at_block(address(boxes + ((t + 1) & 1)), me.thread));
        }
        for (int n = me.thread; n < UNITS / 8 * ROWS; n += THREADS) {
            int group = n % (UNITS / 8), row = n / (UNITS / 8), b = me.row0 + row;
            if (b < B)
                *(Quad*)(h + (((size_t)me.run * (T + 1) + t + 1) * B + b) * HIDDEN + first_unit + group * 8) =
                    *(Quad*)(write + ((size_t)(first_unit / 8 + group) * ROWS + row) * 16);
        }
    }
    if (BLOCKS > 1) cluster_sync();  // nobody leaves while its shared memory is being read
}

// --- backward ------------------------------------------------------------------------------------------------------------

#if ROWS == 64
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
backward(const Quad* weights, const bf16* d_h, const Quad* saved, const Two* saved_state, const float* state_first,
         const float* w_c, bf16* d_gates, float* d_h_first, float* d_state_first, float* d_w_c, float clip, int T, int B) {
    extern __shared__ __align__(128) unsigned char shared[];
    u64* boxes = (u64*)shared;
    unsigned char* gates = shared + 128;                        // 4 · UNITS columns x ROWS, as `operand` wants them
    unsigned char* outgoing = gates + 4 * UNITS * ROWS * 2;     // partial sums of dh, by owner: HIDDEN x ROWS
    unsigned char* mail = outgoing + HIDDEN * ROWS * 2;         // two of the same size, by sender
    const u32 mail_bytes = HIDDEN * ROWS * 2;
    const Place me(B);
    const int first_unit = me.block * UNITS;

    u32 a[BACK_TILES][BACK_KSTEPS][4];
#pragma unroll
    for (int k = 0; k < BACK_KSTEPS; ++k)
#pragma unroll
        for (int i = 0; i < BACK_TILES; ++i) {
            Quad q = weights[(((size_t)me.run * BLOCKS + me.block) * BACK_KSTEPS + k) * BACK_TILES * THREADS + i * THREADS +
                             me.thread];
            a[i][k][0] = q.x; a[i][k][1] = q.y; a[i][k][2] = q.z; a[i][k][3] = q.w;
        }
    float d_state[TILES][PAIRS][2];
    Peepholes d_w[TILES];
    const size_t step_size = (size_t)BLOCKS * TILES * PAIRS * THREADS;
    const size_t base = ((size_t)me.run * gridDim.y + me.tile) * T * step_size + (size_t)me.block * TILES * PAIRS * THREADS + me.thread;
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        d_w[i].i = d_w[i].f = d_w[i].o = 0.0f;
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) d_state[i][p][0] = d_state[i][p][1] = 0.0f;
    }
    if (me.thread == 0) {
        mailbox_init(address(boxes));
        mailbox_init(address(boxes + 1));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if (BLOCKS > 1) {
            mailbox_expect(address(boxes), BLOCKS * SLICE);
            mailbox_expect(address(boxes + 1), BLOCKS * SLICE);
        }
    }
    if (BLOCKS > 1) cluster_sync(); else __syncthreads();
    const u64 from = operand(address(gates));

    for (int n = 0; n <= T; ++n) {  // n steps are behind us; the last turn only collects dh before the first step
        const int t = T - 1 - n;
        const unsigned char* box = BLOCKS > 1 ? mail + ((n + 1) & 1) * mail_bytes : outgoing;
        Quad kept[PAIRS];
        Two after[PAIRS], before[PAIRS];
        bf16 top[PAIRS][2];
        auto fetch = [&](int i) {  // what the tile's step back needs, asked for before it is waited for
            if (t < 0) return;
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) {
                size_t at = base + t * step_size + (i * PAIRS + p) * THREADS;
                kept[p] = saved[at];
                after[p] = saved_state[at];
                if (t > 0) before[p] = saved_state[at - step_size];
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    int b = min(me.row0 + me.row(p, s), B - 1), unit = first_unit + me.unit(i);
                    top[p][s] = d_h[(((size_t)me.run * T + t) * B + b) * HIDDEN + unit];
                    if (t == 0) (s ? before[p].b : before[p].a) = state_first[((size_t)me.run * B + b) * HIDDEN + unit];
                }
            }
        };
        fetch(0);
        if (BLOCKS > 1 && n > 0) {
            mailbox_wait(address(boxes + ((n + 1) & 1)), ((n - 1) >> 1) & 1);
            if (me.thread == 0) mailbox_expect(address(boxes + ((n + 1) & 1)), BLOCKS * SLICE);
        }
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const int own = me.unit(i), unit = first_unit + own;
            const Peepholes w = peepholes(w_c, me.run, unit);
            float sum[PAIRS][2];
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) sum[p][0] = sum[p][1] = 0.0f;
            if (n > 0) {
#pragma unroll
                for (int source = 0; source < BLOCKS; ++source) {
                    Quad q = *(const Quad*)(box + source * SLICE + own * 128 + (me.upper * 4 + me.inner) * 16);
                    sum[0][0] += low(q.x); sum[0][1] += high(q.x); sum[1][0] += low(q.y); sum[1][1] += high(q.y);
                    sum[2][0] += low(q.z); sum[2][1] += high(q.z); sum[3][0] += low(q.w); sum[3][1] += high(q.w);
                }
            }
#pragma unroll
            for (int p = 0; p < PAIRS; ++p)
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    const int row = me.row(p, s), b = me.row0 + row;
                    if (t < 0) {
                        if (b < B) {
#if CELL == GRU
                            d_h_first[((size_t)me.run * B + b) * HIDDEN + unit] = sum[p][s] + d_state[i][p][s];
#else
                            d_h_first[((size_t)me.run * B + b) * HIDDEN + unit] = sum[p][s];
                            d_state_first[((size_t)me.run * B + b) * HIDDEN + unit] = d_state[i][p][s];
#endif
                        }
                        continue;
                    }
                    Gates k;
                    k.i = low(s ? kept[p].z : kept[p].x); k.f = high(s ? kept[p].z : kept[p].x);
                    k.g = low(s ? kept[p].w : kept[p].y); k.o = high(s ? kept[p].w : kept[p].y);
                    float d_top = widen(top[p][s]) + sum[p][s];
                    if (b >= B) d_top = 0.0f;
                    Gates d = step_back(d_top, d_state[i][p][s], k, s ? after[p].b : after[p].a,
                                        s ? before[p].b : before[p].a, w, d_w[i], clip);
                    uint2 q = make_uint2(pack(d.i, d.f), pack(d.g, d.o));
                    *(uint2*)(gates + ((size_t)(own >> 1) * ROWS + row) * 16 + (own & 1) * 8) = q;
                    if (b < B) *(uint2*)(d_gates + ((((size_t)me.run * T + t) * B + b) * HIDDEN + unit) * 4) = q;
                }
            if (i + 1 < TILES) fetch(i + 1);
        }
        if (t < 0) break;
        // What was sent a step ago must have left before its place is written again.
        if (BLOCKS > 1 && me.thread < BLOCKS) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        publish();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BACK_TILES; ++i) {
            float d[32];
            product_begins();
#pragma unroll
            for (int k = 0; k < BACK_KSTEPS; ++k) multiply(d, a[i][k], from + (u64)(k * 2 * ROWS), k);
            product_ends();
#pragma unroll
            for (int v = 0; v < 32; ++v) asm volatile("" : "+f"(d[v]) :: "memory");
            int target = (2 * i + me.group) * 64 + me.warp * 16 + (me.lane >> 2);
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int up = 0; up < 2; ++up) {
                    Quad q = {pack(d[4 * up + 2 * half], d[4 * up + 2 * half + 1]),
                              pack(d[8 + 4 * up + 2 * half], d[8 + 4 * up + 2 * half + 1]),
                              pack(d[16 + 4 * up + 2 * half], d[16 + 4 * up + 2 * half + 1]),
                              pack(d[24 + 4 * up + 2 * half], d[24 + 4 * up + 2 * half + 1])};
                    *(Quad*)(outgoing + (target + 8 * half) * 128 + (up * 4 + me.inner) * 16) = q;
                }
        }
        publish();
        __syncthreads();
        if (BLOCKS > 1 && me.thread < BLOCKS) {
            send(at_block(address(mail) + (n & 1) * mail_bytes + me.block * SLICE, me.thread),
                 address(outgoing) + me.thread * SLICE, SLICE, at_block(address(boxes + (n & 1)), me.thread));
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
    }
#if CELL == PAPER || CELL == LASAGNE
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        float* parts[3] = {&d_w[i].i, &d_w[i].f, &d_w[i].o};
#pragma unroll
        for (int v = 0; v < 3; ++v) {
            float total = *parts[v];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            total += __shfl_xor_sync(0xffffffffu, total, 16);
            if (me.inner == 0 && me.upper == 0)
                d_w_c[(((size_t)me.run * gridDim.y + me.tile) * 3 + v) * HIDDEN + first_unit + me.unit(i)] = total;
        }
    }
#endif
    if (BLOCKS > 1) cluster_sync();
}
#endif

// --- weights, in the order in which threads hold them -----------------------------------------------------------------------

#define COLUMNS (CELL == GRU ? 3 : 4)

__device__ __forceinline__ float weight(const float* W_h, int run, int from, int gate, int unit) {
    return gate < COLUMNS ? W_h[(((size_t)run * HIDDEN + from) * COLUMNS + gate) * HIDDEN + unit] : 0.0f;
}

extern "C" __global__ void pack_forward(const float* W_h, Quad* weights) {
    const int n = blockIdx.x, thread = threadIdx.x, run = blockIdx.y;  // n = (block · KSTEPS + k) · TILES + i
    const int i = n % TILES, k = n / TILES % KSTEPS, block = n / TILES / KSTEPS;
    const int lane = thread & 31, group = thread >> 7, warp = (thread >> 5) & 3, q = lane >> 2;
    const int unit = block * UNITS + ((i * 2 + group) * 4 + warp) * 4 + (q & 3), gate = q >> 2;
    const int from = k * 16 + 2 * (lane & 3);
    Quad v;
    v.x = pack(weight(W_h, run, from, gate, unit), weight(W_h, run, from + 1, gate, unit));
    v.y = pack(weight(W_h, run, from, gate + 2, unit), weight(W_h, run, from + 1, gate + 2, unit));
    v.z = pack(weight(W_h, run, from + 8, gate, unit), weight(W_h, run, from + 9, gate, unit));
    v.w = pack(weight(W_h, run, from + 8, gate + 2, unit), weight(W_h, run, from + 9, gate + 2, unit));
    weights[((size_t)run * gridDim.x + n) * THREADS + thread] = v;
}

extern "C" __global__ void pack_backward(const float* W_h, Quad* weights) {
    const int n = blockIdx.x, thread = threadIdx.x, run = blockIdx.y;  // n = (block · BACK_KSTEPS + k) · BACK_TILES + i
    const int i = n % BACK_TILES, k = n / BACK_TILES % BACK_KSTEPS, block = n / BACK_TILES / BACK_KSTEPS;
    const int lane = thread & 31, group = thread >> 7, warp = (thread >> 5) & 3, q = lane >> 2;
    const int target = (2 * i + group) * 64 + warp * 16 + q, column = k * 16 + 2 * (lane & 3);
    u32 v[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int to = target + 8 * (r & 1), c = column + 8 * (r >> 1), unit = block * UNITS + (c >> 2);
        v[r] = pack(weight(W_h, run, to, c & 3, unit), weight(W_h, run, to, (c + 1) & 3, unit));
    }
    Quad out = {v[0], v[1], v[2], v[3]};
    weights[((size_t)run * gridDim.x + n) * THREADS + thread] = out;
}

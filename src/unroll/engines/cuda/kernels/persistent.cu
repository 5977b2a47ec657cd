// One recurrent layer over all its time steps in one launch. Recurrent weights stay in registers from the first step to
// the last; one cluster of BLOCKS thread blocks serves ROWS rows of one run, and block r of it owns UNITS hidden units.
//
// The products are done transposed, D[gate column, row] = W_h^T · h^T, so that the weights are the operand that a matrix
// instruction may take from registers. The 16 gate columns of a warp's tile are 4 units x 4 gates: with one exchange
// between two lanes a thread holds all four gates of a unit, and the cell's pointwise part needs no shared memory.
//
// The rows may be cut into chains that take turns: while one chain's results travel, another one computes.
//
// Between two steps the blocks exchange what they made, through each other's shared memory, with no barrier of the whole
// cluster: a block waits for its own mailbox to fill. Two mailboxes take turns. A sender cannot run ahead into a mailbox
// that is still being read: to be there it must have received what its reader sends only after reading.
//
//   forward    h of all units to all blocks            (each block needs the whole h for its gate columns)
//   backward   partial sums of dh to the units' owners  (each block has the gradients of its own gate columns alone)
//
// Eight warps of a block compute. Four more, the porters, have few registers and carry: forward they send h to the other blocks
// and write it to memory; back they bring the records of turns to come, and write the gates' gradients to memory. They
// send one message after the other, and wait until each has left.
//
// HIDDEN, TILES (matrix tiles a warpgroup), ROWS, CHAINS and CELL are given at compilation. Layouts shared with persistent.py:
//
//   pre_x     [M, I, HIDDEN] float4, the gates of a unit side by side (the GRU's candidate last): row ids[m, t, b]; or, without ids,
//             row t·B + b, to which `bias` is still to be added
//   h         [M, T + 1, B, W] bfloat16; step 0 is the first state. Behind the HIDDEN units of a row is room for `mark`
//   first     strides of a run and of a row: a row's is 0 where all rows of a run start alike
//   d_gates   [M, T, B, HIDDEN, 4] bfloat16
//   saved     whatever a thread will want back, in its own order: 4 values an element, and the state in float32

typedef unsigned long long u64;

#define UNITS (32 * TILES)
#define BLOCKS (HIDDEN / UNITS)
#define KSTEPS (HIDDEN / 16)         // forward: 16 units of h an instruction
#define BACK_KSTEPS (8 * TILES)      // backward: 16 of the block's own gate columns
#define BACK_TILES (HIDDEN / 128)    // tiles of 64 units a warpgroup
#define CROWS (ROWS / CHAINS)        // rows of a chain
#define PAIRS (CROWS / 16)
#define THREADS 256                  // that compute
#define PORTERS 128
#define ALL (THREADS + PORTERS)
#define SHARE 168                    // registers of each at a block's launch
#define FORWARD_SHARE (TILES == 1 && CHAINS == 1 ? 232 : 240)  // and of those that compute, once the porters have left theirs
#define BACKWARD_SHARE (TILES == 1 ? 232 : 224)
#define SLICE (UNITS * CROWS * 2)    // bytes that one block sends to another
#define MAIL (HIDDEN * CROWS * 2)
#define TOTALS 5                     // over rows: the gradients of the first h and state, and of three peepholes
#define OWN (4 * UNITS * CROWS * 2)  // bytes of the gates' gradients of a block's own units
#define SOME (BLOCKS % 8 ? BLOCKS < 4 ? BLOCKS : 4 : 8)  // partial sums that are asked for at a time
// The records of a turn back: what `saved` has, the states before, and d_h, with room between rows, so that they lie in different banks.
#define KEPT (TILES * PAIRS * THREADS * 16)
#define STATES (KEPT / 2)
#define TOP_ROW (UNITS * 2 + 16)
#define TOPS ((UNITS / 8 * CROWS + PORTERS - 1) / PORTERS)  // quads of d_h that a porter brings
#define RECORDS (KEPT + STATES + CROWS * TOP_ROW)
#define STAGES (TILES > CHAINS ? 2 : 4)  // turns whose records are there or on their way

struct __align__(16) Quad { u32 x, y, z, w; };
struct __align__(8) Two { float a, b; };

// --- small instructions ------------------------------------------------------------------------------------------------

__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 at_block(u32 own, u32 block) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(block));
    return there;
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int EACH> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(EACH));
}
template <int EACH> __device__ __forceinline__ void leave_registers() {  // so that everyone who computes may take as many
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"((SHARE * ALL - EACH * THREADS) / PORTERS));
}
// All who compute meet.
__device__ __forceinline__ void computed() { asm volatile("barrier.cta.sync.aligned 1, %0;" :: "n"(THREADS) : "memory"); }
// They say that they have written, and go on; the porters wait for all of them to have said so.
__device__ __forceinline__ void written(int chain) {
    asm volatile("barrier.cta.arrive.aligned %0, %1;" :: "r"(1 + chain), "n"(ALL) : "memory");
}
__device__ __forceinline__ void await_written(int chain) {
    asm volatile("barrier.cta.sync.aligned %0, %1;" :: "r"(1 + chain), "n"(ALL) : "memory");
}

// Loads that stay where they are written: ahead of the products, whose issue would hold them up.
__device__ __forceinline__ int load(const int* from) {
    int v;
    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}
__device__ __forceinline__ Quad load(const Quad* from) {
    Quad v;
    asm volatile("ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}
__device__ __forceinline__ Gates load(const Gates* from) {
    Gates v;
    asm volatile("ld.global.nc.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.i), "=f"(v.f), "=f"(v.g), "=f"(v.o) : "l"(from));
    return v;
}

// --- mailboxes -----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void send(u32 to, u32 from, u32 bytes, u32 box) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(to), "r"(from), "r"(bytes), "r"(box) : "memory");
}

// To the same place in all other blocks, by way of memory. It takes longer than to send each a copy, but the network between
// blocks, which carries no more than it does when all clusters are busy, carries one instead of BLOCKS - 1.
__device__ __forceinline__ void spread(u32 at, void* way, u32 box, int block) {
    const unsigned short others = ((1 << BLOCKS) - 1) & ~(1 << block);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(way), "r"(at), "n"(SLICE) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                 :: "r"(at), "l"(way), "n"(SLICE), "r"(box), "h"(others) : "memory");
}

// Straight from registers: no copy through the sender's own shared memory, and no barrier for it.
template <int WORDS> __device__ __forceinline__ void send(u32 to, const u32 (&v)[WORDS], u32 box) {
    if (WORDS == 2)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1,%2}, [%3];"
                     :: "r"(to), "r"(v[0]), "r"(v[1]), "r"(box) : "memory");
#pragma unroll
    for (int w = 0; w + 4 <= WORDS; w += 4)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];"
                     :: "r"(to + 4 * w), "r"(v[w]), "r"(v[w + 1]), "r"(v[w + 2]), "r"(v[w + 3]), "r"(box) : "memory");
}

// A thread's rows of a unit, two to a word.
__device__ __forceinline__ void take(u32 (&q)[1], u32 from) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(q[0]) : "r"(from) : "memory");
}
__device__ __forceinline__ void take(u32 (&q)[2], u32 from) {
    asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(q[0]), "=r"(q[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void take(u32 (&q)[4], u32 from) {
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3]) : "r"(from) : "memory");
}

// --- matrix products: 64 columns of D a warpgroup, weights from registers, the other operand from shared memory -----------

__device__ __forceinline__ u64 operand(u32 shared) {
    // No swizzle: blocks of 8 rows x 16 bytes; 128 bytes to the next 8 rows, CROWS · 16 to the next 8 of the inner axis.
    return ((u64)(shared >> 4) & 0x3fff) | ((u64)CROWS << 16) | ((u64)8 << 32);
}

#if CROWS == 64
__device__ __forceinline__ void multiply(float (&d)[32], const u32 (&a)[4], u64 b, int add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
        "{%32,%33,%34,%35}, %36, add, 1, 1, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#elif CROWS == 32
__device__ __forceinline__ void multiply(float (&d)[16], const u32 (&a)[4], u64 b, int add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},"
        "{%16,%17,%18,%19}, %20, add, 1, 1, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#else
__device__ __forceinline__ void multiply(float (&d)[8], const u32 (&a)[4], u64 b, int add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7},"
        "{%8,%9,%10,%11}, %12, add, 1, 1, 0;\n}"
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
    __device__ bool carries() const { return thread >= THREADS; }
};

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

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(ALL, 1)
forward(const Quad* weights, const Gates* pre_x, const int* ids, const Gates* bias, const float* w_c, const float* h_first,
        const float* state_first, const long long* at, bf16* h, Quad* saved, Two* saved_state, float* h_at,
        float* state_at, unsigned char* exchange, int run_stride, int row_stride, int W, int I, int T, int B) {
    extern __shared__ __align__(128) unsigned char shared[];
    const Place me(B);
    const int first_unit = me.block * UNITS;
    const u32 boxes = address(shared);       // box of (chain, parity): 8 bytes each
    unsigned char* const mail = shared + 128;  // of (chain, parity): MAIL bytes each, h as `operand` wants it
    int* const tokens = (int*)(mail + 2 * CHAINS * MAIL);  // of four steps, ROWS each
    Gates* const biases = (Gates*)(tokens + 4 * ROWS);    // of the block's own units, where pre_x lacks them
    h += (size_t)me.run * (T + 1) * B * W;
    if (ids) ids += (size_t)me.run * T * B;

    if (me.carries()) {
        leave_registers<FORWARD_SHARE>();
        const int porter = me.thread - THREADS, b = min(me.row0 + porter, B - 1);
        const int peer = porter % 32 * (PORTERS / 32) + porter / 32;  // a warp's copies leave one after the other
        exchange += (((size_t)me.run * gridDim.y + me.tile) * 2 * CHAINS * BLOCKS + me.block) * SLICE;
        if (bias && porter < UNITS) biases[porter] = bias[me.run * HIDDEN + first_unit + porter];
        int token = 0;
        auto look_up = [&](int t) {
            if (ids && porter < ROWS && t < T) token = load(ids + t * B + b);
        };
        for (int t = 0; t < 3; ++t) {
            look_up(t);
            if (porter < ROWS) tokens[t * ROWS + porter] = token;
        }
        look_up(3);
        cluster_sync();  // the first h is there
        for (int t = 0; t < T; ++t)
            for (int c = 0; c < CHAINS; ++c) {
                const int made = 2 * c + 1 - (t & 1);
                unsigned char* const slice = mail + made * MAIL + me.block * SLICE;
                bf16* const to = h + ((size_t)(t + 1) * B + me.row0 + c * CROWS) * W + first_unit;
                await_written(c);
                if (t + 1 < T) {
                    const u32 box = boxes + 8 * made;
                    // The block's own slice is there. The box must not say so earlier: a reader takes it as proof that the porters have met.
                    if (porter == 0) gate_expect(box, (BLOCKS - 1) * SLICE);
                    if (CHAINS > 1) {
                        if (porter == 0) spread(address(slice), exchange + made * MAIL, box, me.block);
                    } else if (peer < BLOCKS && peer != me.block) {
                        send(at_block(address(slice), peer), address(slice), SLICE, at_block(box, peer));
                    }
                }
#pragma unroll 2
                for (int n = porter; n < UNITS / 8 * CROWS; n += PORTERS) {
                    const int group = n / 8 % (UNITS / 8), row = n / UNITS * 8 + n % 8;
                    if (me.row0 + c * CROWS + row < B)
                        *(Quad*)(to + (size_t)row * W + group * 8) = *(const Quad*)(slice + (group * CROWS + row) * 16);
                }
                if (c) continue;
                // Nobody reads the step before this one any more: its place is that of the third from here.
                if (porter < ROWS) tokens[(t + 3) % 4 * ROWS + porter] = token;
                look_up(t + 4);
            }
        cluster_sync();
        return;
    }

    take_registers<FORWARD_SHARE>();
    u32 a[TILES][KSTEPS][4];
    const Quad* own_weights = weights + ((size_t)me.run * BLOCKS + me.block) * KSTEPS * TILES * THREADS + me.thread;
#pragma unroll
    for (int k = 0; k < KSTEPS; ++k)
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            Quad q = own_weights[(k * TILES + i) * THREADS];
            a[i][k][0] = q.x; a[i][k][1] = q.y; a[i][k][2] = q.z; a[i][k][3] = q.w;
        }

    // The first h: all units into the first mailboxes, the block's own also into step 0 of the output.
#pragma unroll 4
    for (int n = me.thread; n < HIDDEN / 8 * ROWS; n += THREADS) {
        int group = n / ROWS, row = n % ROWS, b = min(me.row0 + row, B - 1);
        const Gates* from = (const Gates*)(h_first + (size_t)me.run * run_stride + b * row_stride + group * 8);
        const Gates u = from[0], v = from[1];  // eight neighbours
        Quad q = {pack(u.i, u.f), pack(u.g, u.o), pack(v.i, v.f), pack(v.g, v.o)};
        *(Quad*)(mail + row / CROWS * 2 * MAIL + (group * CROWS + row % CROWS) * 16) = q;
        if (group / (UNITS / 8) == me.block && me.row0 + row < B) *(Quad*)(h + (size_t)b * W + group * 8) = q;
    }
    auto row = [&](int c, int p, int s) { return min(me.row0 + c * CROWS + me.row(p, s), B - 1); };
    float state[CHAINS][TILES][PAIRS][2];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c)
#pragma unroll
        for (int i = 0; i < TILES; ++i)
#pragma unroll
            for (int p = 0; p < PAIRS; ++p)
#pragma unroll
                for (int s = 0; s < 2; ++s)
                    state[c][i][p][s] =
                        state_first[(size_t)me.run * run_stride + row(c, p, s) * row_stride + first_unit + me.unit(i)];
    if (me.thread == 0) {
        for (int box = 0; box < 2 * CHAINS; ++box) gate_init(boxes + 8 * box, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    publish();
    cluster_sync();

    const int kept_at = (int)at[me.run];
    Peepholes w_of[TILES];
#pragma unroll
    for (int i = 0; i < TILES; ++i) w_of[i] = peepholes(w_c, me.run, first_unit + me.unit(i));
    const Gates* const own_x = pre_x + (size_t)me.run * I * HIDDEN + first_unit;
    const u32 step_size = BLOCKS * TILES * CHAINS * PAIRS * THREADS;
    if (saved) {
        size_t from = (((size_t)me.run * gridDim.y + me.tile) * T * BLOCKS + me.block) * (step_size / BLOCKS) + me.thread;
        saved += from;
        saved_state += from;
    }
    Gates x[CHAINS][TILES][PAIRS][2];
    auto fetch = [&](int c, int i, int t) {  // what step t adds to the gates
        if (t >= T) return;
#pragma unroll
        for (int p = 0; p < PAIRS; ++p)
#pragma unroll
            for (int s = 0; s < 2; ++s) {
                const int where = ids ? tokens[t % 4 * ROWS + c * CROWS + me.row(p, s)] : t * B + row(c, p, s);
                x[c][i][p][s] = load(own_x + (size_t)(where * HIDDEN + me.unit(i)));
            }
    };
#pragma unroll
    for (int c = 0; c < CHAINS; ++c)
#pragma unroll
        for (int i = 0; i < TILES; ++i) fetch(c, i, 0);

    for (int t = 0; t < T; ++t) {
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) {
            const int parity = t & 1;
            unsigned char* const write = mail + (2 * c + 1 - parity) * MAIL;
            if (t > 0) gate_wait(boxes + 8 * (2 * c + parity), ((t - 1) >> 1) & 1);
            const u64 from = operand(address(mail + (2 * c + parity) * MAIL));
            float sums_of[TILES][CROWS / 2];
            product_begins();
#pragma unroll
            for (int i = 0; i < TILES; ++i) {
#pragma unroll
                for (int k = 0; k < KSTEPS; ++k) multiply(sums_of[i], a[i][k], from + (u64)(k * 2 * CROWS), k);
                product_issued();
            }
#pragma unroll
            for (int i = 0; i < TILES; ++i) {
                const int own = me.unit(i);
                const Peepholes w = w_of[i];
                // The next tile is multiplied while this one's units take their step.
                if (i + 1 < TILES) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                else asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                float (&d)[CROWS / 2] = sums_of[i];
#pragma unroll
                for (int n = 0; n < CROWS / 2; ++n) asm volatile("" : "+f"(d[n]));
                if (bias) {
                    const Gates add = biases[own];
#pragma unroll
                    for (int p = 0; p < PAIRS; ++p)
#pragma unroll
                        for (int s = 0; s < 2; ++s) {
                            Gates& v = x[c][i][p][s];
                            v = {v.i + add.i, v.f + add.f, v.g + add.g, v.o + add.o};
                        }
                }
                // One stretch without branches, so that the elements' chains of instructions interleave.
                float out[PAIRS][2];
                Quad kept[PAIRS];
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
                    float mine[4], theirs[4];
#pragma unroll
                    for (int v = 0; v < 4; ++v) {
                        mine[v] = me.upper ? d[8 * p + 4 + v] : d[8 * p + v];
                        theirs[v] = __shfl_xor_sync(0xffffffffu, me.upper ? d[8 * p + v] : d[8 * p + 4 + v], 16);
                    }
                    Gates keep[2];
#pragma unroll
                    for (int s = 0; s < 2; ++s) {
                        Gates sums;
                        sums.i = me.upper ? theirs[s] : mine[s];
                        sums.f = me.upper ? mine[s] : theirs[s];
                        sums.g = me.upper ? theirs[2 + s] : mine[2 + s];
                        sums.o = me.upper ? mine[2 + s] : theirs[2 + s];
                        out[p][s] = step(x[c][i][p][s], sums, state[c][i][p][s], w, keep[s]);
                    }
                    kept[p].x = pack(keep[0].i, keep[0].f); kept[p].y = pack(keep[0].g, keep[0].o);
                    kept[p].z = pack(keep[1].i, keep[1].f); kept[p].w = pack(keep[1].g, keep[1].o);
                }
                const int unit = first_unit + own;
                unsigned char* const to = write + ((unit >> 3) * CROWS + me.row(0, 0)) * 16 + (unit & 7) * 2;
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
                    const u32 both = pack(out[p][0], out[p][1]);
                    *(bf16*)(to + p * 256) = (bf16)both;
                    *(bf16*)(to + p * 256 + 16) = (bf16)(both >> 16);
                }
                if (i == TILES - 1) {  // what the others wait for leaves first, the records follow
                    publish();
                    written(c);
                }
                fetch(c, i, t + 1);
                if (saved) {
#pragma unroll
                    for (int p = 0; p < PAIRS; ++p) {
                        Two st = {state[c][i][p][0], state[c][i][p][1]};
                        saved[((c * PAIRS + p) * TILES + i) * THREADS] = kept[p];
                        saved_state[((c * PAIRS + p) * TILES + i) * THREADS] = st;
                    }
                }
                if (t + 1 == kept_at) {
#pragma unroll
                    for (int p = 0; p < PAIRS; ++p)
#pragma unroll
                        for (int s = 0; s < 2; ++s) {
                            const int b = me.row0 + c * CROWS + me.row(p, s);
                            if (b < B) {
                                h_at[((size_t)me.run * B + b) * HIDDEN + unit] = out[p][s];
                                state_at[((size_t)me.run * B + b) * HIDDEN + unit] = state[c][i][p][s];
                            }
                        }
                }
            }
        }
        if (saved) {
            saved += step_size;
            saved_state += step_size;
        }
    }
    cluster_sync();  // nobody leaves while its shared memory is being read
}

// --- backward ------------------------------------------------------------------------------------------------------------

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(ALL, 1)
backward(const Quad* weights, const bf16* d_h, const Quad* saved, const Two* saved_state, const float* state_first,
         const float* w_c, bf16* d_gates, float* d_h_first, float* d_state_first, float* totals, float clip, int run_stride,
         int row_stride, int T, int B) {
    extern __shared__ __align__(128) unsigned char shared[];
    const Place me(B);
    const int first_unit = me.block * UNITS;
    // Gates: of the mailboxes; of the stages of records; of every other turn's gradients that they were made, and stored.
    const u32 boxes = address(shared), brought = boxes + 32, made = boxes + 64, stored = boxes + 80;
    unsigned char* const gates = shared + 128;     // of every other turn: 4 · UNITS columns x CROWS, as `operand` wants them
    unsigned char* const mail = gates + 2 * OWN;     // of (chain, parity): partial sums of dh, by sender
    unsigned char* const records = mail + 2 * CHAINS * MAIL;  // of STAGES turns
    const int step_size = BLOCKS * TILES * CHAINS * PAIRS * THREADS;
    // From the last step on, back.
    const size_t last = ((((size_t)me.run * gridDim.y + me.tile) * T + T - 1) * BLOCKS + me.block) * (step_size / BLOCKS);
    saved += last;
    saved_state += last;
    d_h += ((size_t)me.run * T + T - 1) * B * HIDDEN + first_unit;
    d_gates += (((size_t)me.run * T + T - 1) * B * HIDDEN + first_unit) * 4;
    if (me.thread == 0) {
        for (int box = 0; box < 2 * CHAINS; ++box) gate_init(boxes + 8 * box, 1);
        for (int stage = 0; stage < STAGES; ++stage) gate_init(brought + 8 * stage, 1 + PORTERS / 32);
        for (int place = 0; place < 2; ++place) {
            gate_init(made + 8 * place, 1);
            gate_init(stored + 8 * place, PORTERS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int box = 0; box < 2 * CHAINS; ++box) gate_expect(boxes + 8 * box, BLOCKS * SLICE);
    }

    if (me.carries()) {
        leave_registers<BACKWARD_SHARE>();
        cluster_sync();
        const int porter = me.thread - THREADS;
        Quad top[TOPS];
        auto look_up = [&](int turn) {  // d_h of a turn
            const int n = turn / CHAINS, row0 = me.row0 + turn % CHAINS * CROWS;
            if (n >= T) return;
#pragma unroll
            for (int m = 0; m < TOPS; ++m) {
                const int at = porter + m * PORTERS, row = at / (UNITS / 8);
                if (row < CROWS)
                    top[m] = load((const Quad*)(d_h + (min(row0 + row, B - 1) - (long long)n * B) * HIDDEN) + at % (UNITS / 8));
            }
        };
        auto supply = [&](int turn) {
            const int n = turn / CHAINS, c = turn % CHAINS, stage = turn % STAGES;
            if (n >= T) return;
            unsigned char* const record = records + stage * RECORDS;
            const u32 gate = brought + 8 * stage;
            if (porter == 0) {
                const size_t at = (size_t)c * TILES * PAIRS * THREADS;
                gate_expect(gate, KEPT + (n + 1 < T ? STATES : 0));
                bring(address(record), saved - (size_t)n * step_size + at, KEPT, gate);
                if (n + 1 < T) bring(address(record) + KEPT, saved_state - (size_t)(n + 1) * step_size + at, STATES, gate);
            }
#pragma unroll
            for (int m = 0; m < TOPS; ++m) {
                const int at = porter + m * PORTERS, row = at / (UNITS / 8);
                if (row < CROWS) *(Quad*)(record + KEPT + STATES + row * TOP_ROW + at % (UNITS / 8) * 16) = top[m];
            }
            __syncwarp();
            if (me.lane == 0) gate_arrive(gate);
        };
        for (int turn = 0; turn < STAGES; ++turn) {
            look_up(turn);
            supply(turn);
        }
        look_up(STAGES);  // a turn early: it has time to come
        for (int turn = 0; turn < T * CHAINS; ++turn) {
            const int n = turn / CHAINS, row0 = me.row0 + turn % CHAINS * CROWS;
            gate_wait(made + 8 * (turn & 1), turn / 2 & 1);  // and the records have been read
            supply(turn + STAGES);
            look_up(turn + STAGES + 1);
            const unsigned char* const now = gates + (turn & 1) * OWN;
            bf16* const to = d_gates + (row0 - (long long)n * B) * HIDDEN * 4;
#pragma unroll 4
            for (int m = porter; m < UNITS / 2 * CROWS; m += PORTERS) {
                const int two = m / 8 % (UNITS / 2), row = m / (4 * UNITS) * 8 + m % 8;  // two units
                if (row0 + row < B)
                    *(Quad*)(to + (size_t)row * HIDDEN * 4 + two * 8) = *(const Quad*)(now + (two * CROWS + row) * 16);
            }
            __syncwarp();
            if (me.lane == 0) gate_arrive(stored + 8 * (turn & 1));
        }
        cluster_sync();
        return;
    }

    take_registers<BACKWARD_SHARE>();
    u32 a[BACK_TILES][BACK_KSTEPS][4];
    const Quad* own_weights = weights + ((size_t)me.run * BLOCKS + me.block) * BACK_KSTEPS * BACK_TILES * THREADS + me.thread;
#pragma unroll
    for (int k = 0; k < BACK_KSTEPS; ++k)
#pragma unroll
        for (int i = 0; i < BACK_TILES; ++i) {
            Quad q = own_weights[(k * BACK_TILES + i) * THREADS];
            a[i][k][0] = q.x; a[i][k][1] = q.y; a[i][k][2] = q.z; a[i][k][3] = q.w;
        }
    float d_state[CHAINS][TILES][PAIRS][2];
    Two after[CHAINS][TILES][PAIRS];  // the state behind the step that is next
    Peepholes w_of[TILES], d_w[TILES];
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        w_of[i] = peepholes(w_c, me.run, first_unit + me.unit(i));
        d_w[i].i = d_w[i].f = d_w[i].o = 0.0f;
#pragma unroll
        for (int c = 0; c < CHAINS; ++c)
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) {
                d_state[c][i][p][0] = d_state[c][i][p][1] = 0.0f;
                after[c][i][p] = saved_state[((c * PAIRS + p) * TILES + i) * THREADS + me.thread];
            }
    }
    state_first += (size_t)me.run * run_stride + first_unit;
    cluster_sync();

    // Partial sums that have arrived for one tile's elements; some at a time are asked for before the first is used.
    auto collect = [&](const unsigned char* read, int i, float (&sum)[PAIRS][2]) {
        const u32 place = address(read) + me.unit(i) * (2 * CROWS) + (me.inner * 2 + me.upper) * (4 * PAIRS);
#pragma unroll
        for (int first = 0; first < BLOCKS; first += SOME) {
            u32 q[SOME][PAIRS];
#pragma unroll
            for (int source = 0; source < SOME; ++source) take(q[source], place + (first + source) * SLICE);
#pragma unroll
            for (int source = 0; source < SOME; ++source)
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
                    sum[p][0] += low(q[source][p]);
                    sum[p][1] += high(q[source][p]);
                }
        }
    };
    auto await = [&](int c, int n, bool come) {
        if (n > 0) {
            const u32 box = boxes + 8 * (2 * c + ((n + 1) & 1));
            if (!come) gate_wait(box, ((n - 1) >> 1) & 1);
            if (me.thread == 0) gate_expect(box, BLOCKS * SLICE);
        }
    };
    auto arrived = [&](int c, int n) { return mail + (2 * c + ((n + 1) & 1)) * MAIL; };

    // What a turn needs besides the sums. Where it is much, it is asked for during the product before.
    Quad kept[TILES][PAIRS];
    Two before[TILES][PAIRS];
    float top[TILES][PAIRS][2];
    auto prepare = [&](int c, int n) {
        const int turn = n * CHAINS + c;
        const unsigned char* const record = records + turn % STAGES * RECORDS;
        // To ask takes a while: both questions are put before the first answer is needed.
        const u32 gate = brought + 8 * (turn % STAGES), parity = turn / STAGES & 1, open = gate_open(gate, parity);
        if (turn > 1) gate_wait(stored + 8 * (turn & 1), (turn / 2 - 1) & 1);
        if (!open) gate_wait(gate, parity);
#pragma unroll
        for (int i = 0; i < TILES; ++i)
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) {
                const int own = me.unit(i), place = (p * TILES + i) * THREADS + me.thread;
                auto first = [&](int s) { return state_first[min(me.row0 + c * CROWS + me.row(p, s), B - 1) * row_stride + own]; };
                kept[i][p] = *(const Quad*)(record + place * 16);
                if (n + 1 < T) before[i][p] = *(const Two*)(record + KEPT + place * 8);
                else before[i][p] = {first(0), first(1)};
#pragma unroll
                for (int s = 0; s < 2; ++s)
                    top[i][p][s] = widen(*(const bf16*)(record + KEPT + STATES + me.row(p, s) * TOP_ROW + own * 2));
            }
    };
    if (TILES > 1) prepare(0, 0);

    for (int n = 0; n < T; ++n)  // n steps are behind us
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) {
            const int turn = n * CHAINS + c;
            unsigned char* const now = gates + (turn & 1) * OWN;
            const bool come = n == 0 || gate_open(boxes + 8 * (2 * c + ((n + 1) & 1)), ((n - 1) >> 1) & 1);
            if (TILES == 1) prepare(c, n);
            await(c, n, come);
#pragma unroll
            for (int i = 0; i < TILES; ++i) {
                const int own = me.unit(i);
                float sum[PAIRS][2];
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) sum[p][0] = sum[p][1] = 0.0f;
                if (n > 0) collect(arrived(c, n), i, sum);
                unsigned char* const to = now + ((own >> 1) * CROWS + me.row(0, 0)) * 16 + (own & 1) * 8;
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
#pragma unroll
                    for (int s = 0; s < 2; ++s) {
                        const Quad& all = kept[i][p];
                        Gates k;
                        k.i = low(s ? all.z : all.x); k.f = high(s ? all.z : all.x);
                        k.g = low(s ? all.w : all.y); k.o = high(s ? all.w : all.y);
                        const float inside = me.row0 + c * CROWS + me.row(p, s) < B ? 1.0f : 0.0f;
                        const Gates d = step_back((top[i][p][s] + sum[p][s]) * inside, d_state[c][i][p][s], k,
                                                  s ? after[c][i][p].b : after[c][i][p].a, s ? before[i][p].b : before[i][p].a,
                                                  w_of[i], d_w[i], clip);
                        *(uint2*)(to + p * 256 + s * 16) = make_uint2(pack(d.i, d.f), pack(d.g, d.o));
                    }
                    after[c][i][p] = before[i][p];
                }
            }
            publish();
            computed();
            if (me.thread == 0) gate_arrive(made + 8 * (turn & 1));  // the porters store what the product needs
            const u64 from = operand(address(now));
            float d[2][CROWS / 2];
            auto start = [&](int i) {
                product_begins();
#pragma unroll
                for (int k = 0; k < BACK_KSTEPS; ++k) multiply(d[i & 1], a[i][k], from + (u64)(k * 2 * CROWS), k);
                product_issued();
            };
            start(0);
            if (BACK_TILES > 1) start(1);
            const int next = (c + 1) % CHAINS, then = n + (next == 0);
            if (TILES > 1 && then < T) prepare(next, then);
#pragma unroll
            for (int i = 0; i < BACK_TILES; ++i) {
                if (i + 1 < BACK_TILES) {
                    if (i > 0) start(i + 1);
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                } else {
                    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                }
                float (&done)[CROWS / 2] = d[i & 1];
#pragma unroll
                for (int v = 0; v < CROWS / 2; ++v) asm volatile("" : "+f"(done[v]));
                const int target = (2 * i + me.group) * 64 + me.warp * 16 + (me.lane >> 2), owner = target / UNITS;
                const int mailbox = 2 * c + (n & 1);
                const u32 box = at_block(boxes + 8 * mailbox, owner);
                const u32 to = at_block(address(mail) + mailbox * MAIL + me.block * SLICE, owner) + me.inner * (8 * PAIRS);
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    u32 q[2 * PAIRS];
#pragma unroll
                    for (int up = 0; up < 2; ++up)
#pragma unroll
                        for (int p = 0; p < PAIRS; ++p)
                            q[up * PAIRS + p] = pack(done[8 * p + 4 * up + 2 * half], done[8 * p + 4 * up + 2 * half + 1]);
                    send(to + (target % UNITS + 8 * half) * (2 * CROWS), q, box);
                }
            }
        }
    // What is left flows into the first state; where all rows start from one, its gradient is a sum over them.
    totals += ((size_t)me.run * gridDim.y + me.tile) * TOTALS * HIDDEN + first_unit;
    auto add_up = [&](int i, int place, float total) {
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        total += __shfl_xor_sync(0xffffffffu, total, 16);
        if (me.inner == 0 && me.upper == 0) totals[place * HIDDEN + me.unit(i)] = total;
    };
    float d_firsts[TILES][2];
#pragma unroll
    for (int i = 0; i < TILES; ++i) d_firsts[i][0] = d_firsts[i][1] = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) {
        await(c, T, false);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            float sum[PAIRS][2];
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) sum[p][0] = sum[p][1] = 0.0f;
            collect(arrived(c, T), i, sum);
#pragma unroll
            for (int p = 0; p < PAIRS; ++p)
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    const int b = me.row0 + c * CROWS + me.row(p, s);
                    const size_t place = ((size_t)me.run * B + b) * HIDDEN + first_unit + me.unit(i);
                    if (b >= B) continue;
                    const float d_h_left = sum[p][s] + (CELL == GRU ? d_state[c][i][p][s] : 0.0f);
                    d_firsts[i][0] += d_h_left;
                    d_firsts[i][1] += d_state[c][i][p][s];
                    if (!row_stride) continue;
                    d_h_first[place] = d_h_left;
                    if (CELL != GRU) d_state_first[place] = d_state[c][i][p][s];
                }
        }
    }
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
        add_up(i, 0, d_firsts[i][0]);
        add_up(i, 1, d_firsts[i][1]);
#if CELL == PAPER || CELL == LASAGNE
        add_up(i, 2, d_w[i].i);
        add_up(i, 3, d_w[i].f);
        add_up(i, 4, d_w[i].o);
#endif
    }
    cluster_sync();
}

// --- weights, in the order in which threads hold them -----------------------------------------------------------------------

#define COLUMNS (CELL == GRU ? 3 : 4)
#define QUADS (HIDDEN * HIDDEN * 4 / 8 / THREADS)  // of a thread, all blocks together

__device__ __forceinline__ float weight(const float* W_h, int run, int from, int gate, int unit) {
    return gate < COLUMNS ? W_h[(((size_t)run * HIDDEN + from) * COLUMNS + gate) * HIDDEN + unit] : 0.0f;
}

// What each symbol adds to the gates: W_x and the bias, the gates of a unit side by side.
__device__ __forceinline__ void pack_inputs(const float* W_x, const float* b, Gates* pre_x, int row, int I) {
    const size_t run = blockIdx.y, at = run * I + row;
    for (int unit = threadIdx.x; unit < HIDDEN; unit += THREADS) {
        float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int gate = 0; gate < COLUMNS; ++gate)  // the GRU's candidate comes last
            v[CELL == GRU && gate == 2 ? 3 : gate] =
                W_x[(at * COLUMNS + gate) * HIDDEN + unit] + b[(run * COLUMNS + gate) * HIDDEN + unit];
        pre_x[at * HIDDEN + unit] = {v[0], v[1], v[2], v[3]};
    }
}

// All that a way forward needs: W_h, and behind it the inputs of I symbols.
extern "C" __global__ void pack_forward(const float* W_h, Quad* weights, const float* W_x, const float* b, Gates* pre_x, int I) {
    const int n = blockIdx.x, thread = threadIdx.x, run = blockIdx.y;  // n = (block · KSTEPS + k) · TILES + i
    if (n >= QUADS) {
        pack_inputs(W_x, b, pre_x, n - QUADS, I);
        return;
    }
    const int i = n % TILES, k = n / TILES % KSTEPS, block = n / TILES / KSTEPS;
    const int lane = thread & 31, group = thread >> 7, warp = (thread >> 5) & 3, q = lane >> 2;
    const int unit = block * UNITS + ((i * 2 + group) * 4 + warp) * 4 + (q & 3), gate = q >> 2;
    const int from = k * 16 + 2 * (lane & 3);
    Quad v;
    v.x = pack(weight(W_h, run, from, gate, unit), weight(W_h, run, from + 1, gate, unit));
    v.y = pack(weight(W_h, run, from, gate + 2, unit), weight(W_h, run, from + 1, gate + 2, unit));
    v.z = pack(weight(W_h, run, from + 8, gate, unit), weight(W_h, run, from + 9, gate, unit));
    v.w = pack(weight(W_h, run, from + 8, gate + 2, unit), weight(W_h, run, from + 9, gate + 2, unit));
    weights[((size_t)run * QUADS + n) * THREADS + thread] = v;
}

// The way back. A block of threads turns the columns of 32 units, over 128 targets: by way of shared memory, so that whole
// lines are read and written.
#define TURNED (4 * 32 + 8)  // bfloat16 of a target: one quad more than there are, so that 8 targets lie in different banks
extern "C" __global__ void pack_backward(const float* W_h, Quad* weights) {
    __shared__ __align__(16) bf16 turned[128 * TURNED];
    const int i = blockIdx.x % BACK_TILES, part = blockIdx.x / BACK_TILES, run = blockIdx.y, thread = threadIdx.x;
#pragma unroll
    for (int n = thread; n < 128 * 8; n += THREADS) {
        const int target = n / 8, unit = n % 8 * 4;  // four units from here on
        const float* const from = W_h + ((size_t)run * HIDDEN + i * 128 + target) * COLUMNS * HIDDEN + part * 32 + unit;
        float v[4][4];
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) {
            const Gates four = gate < COLUMNS ? *(const Gates*)(from + gate * HIDDEN) : Gates{0.0f, 0.0f, 0.0f, 0.0f};
            v[0][gate] = four.i; v[1][gate] = four.f; v[2][gate] = four.g; v[3][gate] = four.o;
        }
        Quad* const to = (Quad*)(turned + target * TURNED + unit * 4);
        to[0] = {pack(v[0][0], v[0][1]), pack(v[0][2], v[0][3]), pack(v[1][0], v[1][1]), pack(v[1][2], v[1][3])};
        to[1] = {pack(v[2][0], v[2][1]), pack(v[2][2], v[2][3]), pack(v[3][0], v[3][1]), pack(v[3][2], v[3][3])};
    }
    __syncthreads();
    const int lane = thread & 31, target = thread / 32 * 16 + (lane >> 2);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        u32 v[4];
#pragma unroll
        for (int r = 0; r < 4; ++r)
            v[r] = *(const u32*)(turned + (target + 8 * (r & 1)) * TURNED + k * 16 + 2 * (lane & 3) + 8 * (r >> 1));
        // The same as (block · BACK_KSTEPS + its k) · BACK_TILES + i.
        weights[((size_t)run * QUADS + (part * 8 + k) * BACK_TILES + i) * THREADS + thread] = {v[0], v[1], v[2], v[3]};
    }
}

// --- what stands beside h in the product that makes the weights' gradients ----------------------------------------------------

// Behind the units of h before step t: a 1 at the token of step t, and one at column I, where all rows are added up. 16
// threads a row, 8 columns each; and 8 rows a thread, whose tokens are all on their way at once.
extern "C" __global__ void mark(const int* ids, bf16* h, int W, int I, int N, int all) {
    const int columns = W - HIDDEN, run = blockIdx.y, row0 = blockIdx.x * (THREADS / 16 * 8) + threadIdx.x / 16;
    int id[8];
#pragma unroll
    for (int n = 0; n < 8; ++n) id[n] = I ? ids[(size_t)run * N + min(row0 + n * (THREADS / 16), N - 1)] : -1;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
        const int row = row0 + n * (THREADS / 16);
        auto one = [&](int column) { return column == I || column == id[n] ? 0x3f80u : 0u; };
        auto two = [&](int column) { return one(column) | one(column + 1) << 16; };
        for (int c = threadIdx.x % 16 * 8; c < columns && row < N; c += 16 * 8)
            *(Quad*)(h + ((size_t)run * all + row) * W + HIDDEN + c) = {two(c), two(c + 2), two(c + 4), two(c + 6)};
    }
}

// The gradients in the parameters' own order, from the product [M, rows, HIDDEN, 4]: of its rows H are W_h's, I are W_x's,
// and one is b's. Behind them the totals over the rows of a batch, whose tiles are added up.
extern "C" __global__ void settle(const Gates* sums, const float* totals, float* d_W_h, float* d_W_x, float* d_b,
                                  float* d_h_first, float* d_state_first, float* d_w_c, int rows, int H, int I, int tiles) {
    const int n = blockIdx.x * THREADS + threadIdx.x, row = n / (HIDDEN / 4), unit = n % (HIDDEN / 4) * 4;
    const size_t run = blockIdx.y;
    if (row > H + I) {
        const int which = row - H - I - 1;
        float* const to = which == 0 ? d_h_first : which == 1 ? d_state_first : d_w_c ? d_w_c + (which - 2) * HIDDEN : d_w_c;
        if (which >= TOTALS || !to) return;
        Gates all = {0.0f, 0.0f, 0.0f, 0.0f};
        for (int tile = 0; tile < tiles; ++tile) {
            const Gates g = *(const Gates*)(totals + ((run * tiles + tile) * TOTALS + which) * HIDDEN + unit);
            all = {all.i + g.i, all.f + g.f, all.g + g.g, all.o + g.o};
        }
        *(Gates*)(to + run * (which < 2 ? 1 : 3) * HIDDEN + unit) = all;
        return;
    }
    float* const to = row < H ? d_W_h + (run * H + row) * COLUMNS * HIDDEN
                    : row < H + I ? d_W_x + (run * I + row - H) * COLUMNS * HIDDEN
                    : d_b ? d_b + run * COLUMNS * HIDDEN : d_b;
    if (!to) return;
    float v[4][4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
        const Gates g = sums[(run * rows + row) * HIDDEN + unit + u];
        v[0][u] = g.i; v[1][u] = g.f; v[2][u] = g.g; v[3][u] = g.o;
    }
#pragma unroll
    for (int gate = 0; gate < COLUMNS; ++gate) {
        const bool towards_x = CELL == GRU && gate == 2 && row >= H;  // the GRU's candidate has a slot for either
        *(Gates*)(to + gate * HIDDEN + unit) = {towards_x ? v[3][0] : v[gate][0], towards_x ? v[3][1] : v[gate][1],
                                                towards_x ? v[3][2] : v[gate][2], towards_x ? v[3][3] : v[gate][3]};
    }
}

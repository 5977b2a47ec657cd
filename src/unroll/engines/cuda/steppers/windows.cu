// A stream's windows, all of which read the token, on Hopper. Follows hopper_gates.cu.
//
// A block has four groups of columns, 16 units, whose weights it keeps, and some tiles of eight windows. Four of its warps multiply, each
// with a group, some tiles at a time, a pass: 64 columns are what the matrix units take at once, both operands from shared memory.
// Four more are the cell. Beside them, two warps bring h, which comes by itself a few chunks ahead, when they have seen that it has been
// written; and one says what the block has written. None of them waits for another longer than it must.
//
// A layer above the first has twice the terms, and so two blocks for the same columns: one multiplies the layer's own h, early, and
// sends the sums to the other one's shared memory; that one multiplies h of the layer below, and is the cell.
//
// A warp has all gates of its four units, in all of the block's windows. So the one that is the cell takes what one other leaves, lane by
// lane: at once, or in the first layer when the token has come. The tile that predicts comes first, with the one that will next.
//
// Windows of different tiles have nothing to do with each other but the token. So a pass waits for the step before of its own
// tiles; a block that has written its part of a tile counts that. A step writes where h of two steps ago stood: its own layer has read
// that in the step before, since all of it waited for all of that step; the layer above must have done that step, too.
//
// What comes out is bit for bit what halves.cu makes of the same chunks: the two instructions add up alike.

#define TILE 8
#define SPREAD 32  // numbers from one count to the next, so that its readers are in nobody's way
#define BEHIND (TOLD / 2)  // steps that a tile may be behind another, which is checked
#define OFTEN (TOLD / 4)   // every OFTEN steps
#define GROUPS 4   // of a block's columns, one for each of the warps that multiply, and of those that are the cell
#define BRINGERS 2
#define WINDOWS_WARPS (2 * GROUPS + BRINGERS + 1)
#define MOST_TILES 32  // of a block: each is looked after by a lane
#define MOST_SLOTS 8   // where chunks of a pass can be
#define EARLY 2        // tiles that come first in a step
#define CHUNK 512      // bytes of a tile: four matrices of 8 windows by 8 terms
#define WEIGHTS 4096   // bytes of a chunk
#define MAIL (GROUPS * 512)  // bytes of a tile's sums
#define CELLS (32 * GROUPS)  // threads
#define TOKEN_DOOR 2
#define TOLD_DOOR 3  // of the early tiles, and behind it of the others

enum Role { FIRST, OWN, BELOW };  // the first layer, and of the others, the product with their own h and with what is below

struct Doors {  // what is waited for in a block: gates of slots, of tiles whose sums come from the other block, and of passes
    u64 full[MOST_SLOTS], empty[MOST_SLOTS], mail[MOST_TILES], ready[MOST_TILES];
    int token;
    unsigned begun[MOST_LAYERS];  // what the counts begin from; all tiles are equally far
};

// Some of the block's warps have come here; some only say so.
__device__ __forceinline__ void all_have_come(int door, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(door), "r"(threads) : "memory"); }
__device__ __forceinline__ void has_come(int door, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(door), "r"(threads) : "memory"); }
__device__ __forceinline__ int alike(int value) { return __shfl_sync(FULL, value, 0); }  // in all lanes, as the compiler is to know

// What a block has to do, and where in shared memory things are.
struct Part {
    int role, group;            // the block's first
    int tile, tiles, all_tiles;
    int early, others, passes;  // tiles that are a pass of their own; passes over the others; and over all
    int chunks;                 // of the terms
    int slots, room;            // for chunks that come: how many, and how many chunks of one tile each holds
    u32 ring;
    float4* sums;  // of tiles that wait for their cell
    float* state;  // c, or where there is none, h
    __device__ Part(const Arguments& a, const Place& p, int number) {
        const int across = p.groups / GROUPS, pair = number ? 2 : 1, index = blockIdx.x - p.block, shares = (int)p.blocks / (across * pair);
        const int share = index / (pair * across);
        role = alike(number ? OWN + index % 2 : FIRST);
        group = index / pair % across * GROUPS;
        all_tiles = (a.windows + TILE - 1) / TILE;
        tile = share * all_tiles / shares;
        tiles = (share + 1) * all_tiles / shares - tile;
        early = role == FIRST ? 0 : min(EARLY, tiles);
        others = (tiles - early + (int)p.at_once - 1) / (int)p.at_once;
        passes = others + (early > 0);
        chunks = a.H / 16;
        slots = p.slots;
        room = p.room;
        char* from = (char*)pool + chunks * WEIGHTS;
        ring = address(from);
        sums = (float4*)(from + slots * room * CHUNK);
        state = (float*)(sums + p.tiles * GROUPS * 32);
    }
    // A step begins with one of the tiles and goes round; a pass has some, from one on in that order.
    __device__ __forceinline__ int first_of(int pass) const {
        const int before = passes - others;
        return pass < before ? 0 : early + (others ? (pass - before) * (tiles - early) / others : 0);
    }
    __device__ __forceinline__ int tile_at(int place) const { return place < tiles ? place : place - tiles; }
    // How many chunks of these tiles come at a time.
    __device__ __forceinline__ int stage(int tiles) const {
        return chunks % 4 == 0 && 4 * tiles <= room ? 4 : 2 * tiles <= room ? 2 : 1;
    }
    // How many tiles announce their h before the others: none where the first layer is the last, for nothing waits for it.
    __device__ __forceinline__ int told_early(int layers) const { return layers > 1 ? min(EARLY, tiles) : 0; }
    __device__ __forceinline__ int place(int tile, int warp, int lane) const { return (tile * GROUPS + warp) * 32 + lane; }
};

// Which windows begin and predict at a step.
struct Turn {
    int windows, begins, predicts;
    i64 n;
    __device__ Turn(const Arguments& a, const Row& row) : windows(a.windows), n(a.now - row.begun) {
        begins = n % windows;
        predicts = n + 1 > windows ? (n + 1) % windows : 0;
    }
    __device__ __forceinline__ void next() {
        if (++begins == windows) begins = 0;
        if (++n + 1 > windows && ++predicts == windows) predicts = 0;
    }
    // The block's tile that its step begins with.
    __device__ __forceinline__ int first(const Part& own) const {
        const int here = predicts - TILE * own.tile;
        return here >= 0 && here < TILE * own.tiles ? here / TILE : 0;
    }
    // And that its products begin with: in the first layer nothing waits for any of them.
    __device__ __forceinline__ int first_product(const Part& own) const { return own.role == FIRST ? 0 : first(own); }
};

// Weights lie as the matrix units take them: [chunks, high and low, 2 · 8 terms, 64 columns by 8, 8, 8 terms].
__device__ __forceinline__ void settle_weights(const Arguments& a, const Place& p, const Part& own) {
    const uint4* from = (const uint4*)(a.weights + p.weights) + own.group * p.parts * 128 + (own.role == BELOW ? own.chunks * 64 : 0);
#pragma unroll 4
    for (int n = threadIdx.x; n < GROUPS * own.chunks * 64; n += blockDim.x) {
        const int lane = n % 32, half = n / 32 % (2 * own.chunks), group = n / 64 / own.chunks;
        const uint4 v = from[group * p.parts * 128 + half * 32 + lane];
        u32* to = (u32*)((char*)pool + half * (WEIGHTS / 2) + 2 * group * 128) + lane;
        to[0] = v.x; to[32] = v.y; to[256] = v.z; to[288] = v.w;
    }
}

// h lies in chunks, and of each all tiles, likewise: [chunks, tiles, high and low, 2 · 8 units, 8 rows, 8 units]. Of every four units two are in
// the first eight and two in the second, as in halves.cu a lane's are.
__device__ __forceinline__ float* matrices_of(float* h, int chunk, int tile, int all_tiles) { return h + (chunk * all_tiles + tile) * (CHUNK / 4); }
__device__ __forceinline__ float joined_in_matrices(const float* matrices, int row, int unit) {
    const unsigned short* high = (const unsigned short*)matrices + (unit % 4 / 2 * 8 + row) * 8 + unit % 16 / 4 * 2 + unit % 2;
    return joined(__ldcg(high) | (u32)__ldcg(high + 128) << 16);
}
__device__ __forceinline__ void put_in_matrices(float* matrices, int group, u32 halves, int lane) {
    const int unit = lane / 8;
    const u32 beside = __shfl_xor_sync(FULL, halves, 8);
    const u32 word = unit % 2 ? __byte_perm(beside, halves, 0x7632) : __byte_perm(halves, beside, 0x5410);
    __stcg((u32*)matrices + (unit % 2 * 2 + unit / 2) * 32 + row_of(lane) * 4 + group % 4, word);
}

// The product with the state that a window begins from, as in halves.cu.
__device__ __forceinline__ float4 product_with_first(const Arguments& a, const Place& p, int group, int chunks, int lane) {
    const uint4 *w = (const uint4*)(a.weights + p.weights) + group * p.parts * 128 + lane, *x = (const uint4*)(a.weights + p.first_h) + lane;
    Sums<1> own;
#pragma unroll 4
    for (int chunk = 0; chunk < chunks; ++chunk) {
        const uint4 tile[1] = {x[32 * chunk]};
        own.add(w[64 * chunk], w[64 * chunk + 32], tile);
    }
    return make_float4(own.at(0, 0), own.at(0, 1), own.at(0, 2), own.at(0, 3));
}

// The lower half of a descriptor: where a matrix is, without the block's number in its cluster, and how far apart those of eight terms are.
__device__ __forceinline__ u32 described(u32 shared, u32 apart) { return (shared >> 4 & 0x3fff) | apart << 16; }

// 64 columns by some tiles of windows by 16 terms. In the upper halves of descriptors is how far apart those of eight columns are, and of eight
// windows.
#define DESCRIBED(W, X) "{\n.reg .b64 w, x;\nmov.b64 w, {%" #W ", 8};\nmov.b64 x, {%" #X ", 32};\n"
__device__ __forceinline__ void multiply(float (&d)[4], u32 w, u32 x) {
    asm volatile(DESCRIBED(4, 5) "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                 "{%0,%1,%2,%3}, w, x, 1, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(w), "r"(x));
}
__device__ __forceinline__ void multiply(float (&d)[8], u32 w, u32 x) {
    asm volatile(DESCRIBED(8, 9) "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7}, w, x, 1, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) : "r"(w), "r"(x));
}
__device__ __forceinline__ void multiply(float (&d)[16], u32 w, u32 x) {
    asm volatile(DESCRIBED(16, 17) "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, w, x, 1, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
                   "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) : "r"(w), "r"(x));
}
__device__ __forceinline__ void multiply(float (&d)[24], u32 w, u32 x) {
    asm volatile(DESCRIBED(24, 25) "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23}, w, x, 1, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
                   "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
                   "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]) : "r"(w), "r"(x));
}
__device__ __forceinline__ void multiply(float (&d)[32], u32 w, u32 x) {
    asm volatile(DESCRIBED(32, 33) "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%2"
                 "7,%28,%29,%30,%31}, w, x, 1, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
                   "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
                   "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
                   "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "r"(w), "r"(x));
}
__device__ __forceinline__ void multiply(float (&d)[44], u32 w, u32 x) {
    asm volatile(DESCRIBED(44, 45) "wgmma.mma_async.sync.aligned.m64n88k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%2"
                 "7,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43}, w, x, 1, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
                   "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
                   "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
                   "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
                   "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
                   "+f"(d[41]), "+f"(d[42]), "+f"(d[43]) : "r"(w), "r"(x));
}
__device__ __forceinline__ void multiply(float (&d)[52], u32 w, u32 x) {
    asm volatile(DESCRIBED(52, 53) "wgmma.mma_async.sync.aligned.m64n104k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%2"
                 "7,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51}, w, x, 1, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
                   "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
                   "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
                   "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
                   "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
                   "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
                   "+f"(d[49]), "+f"(d[50]), "+f"(d[51]) : "r"(w), "r"(x));
}

// The slots that chunks come to, one after the other.
struct Ring {
    u32 data, full, empty, parity;
    int slots, bytes, slot;
    __device__ Ring(const Part& own, Doors& doors)
        : data(own.ring), full(address(doors.full)), empty(address(doors.empty)), parity(0), slots(own.slots), bytes(own.room * CHUNK), slot(0) {}
    __device__ __forceinline__ void next() {
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// A count that a lane reads, and what it comes to when a number of steps is done.
struct Count {
    const unsigned* at;
    unsigned begun, each;
    __device__ __forceinline__ Count(const Arguments& a, const Doors& doors, int layer, int tile) {
        at = a.reached + (layer * ((a.windows + TILE - 1) / TILE) + tile) * SPREAD;
        begun = doors.begun[layer];
        each = a.H / 16;
    }
    __device__ __forceinline__ bool reached(int steps) const {
        unsigned seen;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(at) : "memory");
        return (int)(seen - begun - steps * each) >= 0;
    }
};

// Brings h of each pass, as soon as it is there and there is room: to every second slot, and the other warp to the others.
__device__ __forceinline__ void bringing(const Arguments& a, Opening& open, int number, Doors& doors, int which) {
    const Part own(a, open.places[number], number);
    const int lane = threadIdx.x % 32, top = a.layers - 1, below = own.role == BELOW;
    // A lane looks after a tile: has it been written, and what will be overwritten been read?
    const int looked_after = own.tile + min(lane, own.tiles - 1);
    const Count written(a, doors, number - below, looked_after), above(a, doors, min(number + 1, top), looked_after);
    const i64 half = (i64)own.all_tiles * TILE * a.H;
    Ring ring(own, doors);
    Turn turn(a, open.row);
    bool mine = which == 0;
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t, turn.next()) {
        float* h = a.h + (2 * (number - below) + (((a.now + t) & 1) ^ below)) * half;
        if (number == 0 && t % OFTEN == 0)
            for (int other = lane; other < own.all_tiles; other += 32) while (!Count(a, doors, 0, other).reached(t - BEHIND));
        unsigned ready = 0;  // of the block's tiles
        const int first = turn.first_product(own);
#pragma unroll 1
        for (int pass = 0; pass < own.passes; ++pass) {
            const int from = own.first_of(pass), tiles = own.first_of(pass + 1) - from, stage = own.stage(tiles);
            const unsigned needed = __reduce_or_sync(FULL, 1u << own.tile_at(first + from + min(lane, tiles - 1)));
            while (needed & ~ready) {
                bool found = written.reached(t + below);
                if (own.role != OWN && number < top) found &= above.reached(t - 1);
                ready = __ballot_sync(FULL, found);
            }
            asm volatile("fence.proxy.async.global;" ::: "memory");  // for what others wrote the usual way
            // A lane has a chunk of the tiles up to the block's last, or of those from its first on.
            const int begin = own.tile_at(first + from), straight = min(tiles, own.tiles - begin), chunk_of = lane / 2;
            const int count = lane % 2 ? tiles - straight : straight;
            const u32 to = (chunk_of * tiles + (lane % 2 ? straight : 0)) * CHUNK;
            const bool has = chunk_of < stage && count > 0;
#pragma unroll 1
            for (int chunk = 0; chunk < own.chunks; chunk += stage, ring.next(), mine = !mine) {
                if (!mine) continue;
                const u32 full = ring.full + 8 * ring.slot;
                gate_watch(ring.empty + 8 * ring.slot, ring.parity ^ 1);
                if (lane == 0) gate_expect(full, tiles * stage * CHUNK);
                __syncwarp();
                if (has) bring(ring.data + ring.slot * ring.bytes + to, matrices_of(h, chunk + chunk_of, own.tile + (lane % 2 ? 0 : begin), own.all_tiles), count * CHUNK, full);
            }
        }
    }
}

__device__ __forceinline__ u32 in_block(u32 own, int block) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(block));
    return there;
}

// The warps that multiply.
struct Multiplying {
    const Part& own;
    Ring ring;
    int warp, lane;
    u32 weights;            // the first chunk's, described
    u32 mail;               // gates of the sums that come from the other block
    u32 there, mail_there;  // where that one's sums and gates are
    float4 fresh;           // what comes out for a window that begins
    int begins;             // which does, from the block's first on

    // The other block's sums of some tiles have come.
    __device__ __forceinline__ void sent(int from, int tiles, u32 parity) const {
#pragma unroll 1
        for (int i = 0; i < tiles; ++i) {
            const u32 gate = mail + 8 * own.tile_at(from + i);
            gate_watch(gate, parity);
            if (threadIdx.x == 0) gate_expect(gate, MAIL);  // in the next step
        }
    }
    // Sums go to the cell, or to the other block.
    template <int TILES>
    __device__ __forceinline__ void leave(int from, int tiles, const float (&high)[4 * TILES], const float (&low)[4 * TILES]) const {
        const bool more = own.role == BELOW;
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            if (i >= tiles) break;
            const int tile = own.tile_at(from + i), row = begins - TILE * tile - lane % 4 * 2;
            float4& sum = own.sums[own.place(tile, warp, lane)];
            float4 v = more ? sum : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            v.x += fmaf(low[4 * i], 1.0f / LOW, high[4 * i]);
            v.y += fmaf(low[4 * i + 1], 1.0f / LOW, high[4 * i + 1]);
            v.z += fmaf(low[4 * i + 2], 1.0f / LOW, high[4 * i + 2]);
            v.w += fmaf(low[4 * i + 3], 1.0f / LOW, high[4 * i + 3]);
            if (!more && row == 0) { v.x = fresh.x; v.z = fresh.z; }
            if (!more && row == 1) { v.y = fresh.y; v.w = fresh.w; }
            if (own.role == OWN)
                asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];"
                             ::"r"(there + 16 * own.place(tile, warp, lane)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(mail_there + 8 * tile) : "memory");
            else sum = v;
        }
    }
    // All chunks of some tiles, as halves.cu adds them up. What is multiplied beyond these tiles is nobody's.
    template <int TILES, int CHUNKS>
    __device__ __forceinline__ void product(int from, int tiles, u32 parity) {
        float high[4 * TILES] = {}, low[4 * TILES] = {};
        u32 w = weights, used = 0;
#pragma unroll 1
        for (int chunk = 0; chunk < own.chunks; chunk += CHUNKS, ring.next()) {
            gate_watch(ring.full + 8 * ring.slot, ring.parity);
            u32 x = described(ring.data + ring.slot * ring.bytes, 8);
            product_begins();
#pragma unroll
            for (int n = 0; n < CHUNKS; ++n, w += WEIGHTS / 16, x += tiles * (CHUNK / 16)) {
                multiply(high, w, x);
                multiply(low, w, x + CHUNK / 32);
                multiply(low, w + WEIGHTS / 32, x);
            }
            product_issued();
            if (used) {
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (lane == 0) gate_arrive(used);
            }
            used = ring.empty + 8 * ring.slot;
        }
        product_done(high);
        product_done(low);
        if (lane == 0) gate_arrive(used);
        if (own.role == BELOW) sent(from, tiles, parity);
        leave<TILES>(from, tiles, high, low);
    }
    template <int TILES>
    __device__ __forceinline__ void product(int from, int tiles, u32 parity) {
        switch (alike(own.stage(tiles))) {
            case 4: product<TILES, 4>(from, tiles, parity); break;
            case 2: product<TILES, 2>(from, tiles, parity); break;
            default: product<TILES, 1>(from, tiles, parity);
        }
    }
    __device__ __forceinline__ void pass(int from, int tiles, u32 parity) {
        const int known = alike(tiles);
        if (known <= 1) product<1>(from, known, parity);
        else if (known <= 2) product<2>(from, known, parity);
        else if (known <= 4) product<4>(from, known, parity);
        else if (known <= 6) product<6>(from, known, parity);
        else if (known <= 8) product<8>(from, known, parity);
        else if (known <= 11) product<11>(from, known, parity);
        else product<13>(from, known, parity);
    }
};

__device__ __forceinline__ void multiplying(const Arguments& a, Opening& open, int number, Doors& doors) {
    const Place& p = open.places[number];
    const Part own(a, p, number);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 mail = address(doors.mail), ready = address(doors.ready);
    Multiplying all = {own, Ring(own, doors), warp, lane, described(address(pool), 64), mail, in_block(address(own.sums), 1), in_block(mail, 1)};
    if (own.role != BELOW) all.fresh = product_with_first(a, p, own.group + warp, own.chunks, lane);
    else if (threadIdx.x == 0)
        for (int tile = 0; tile < own.tiles; ++tile) gate_expect(mail + 8 * tile, MAIL);
    Turn turn(a, open.row);
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t, turn.next()) {
        const int first = turn.first_product(own);
        all.begins = turn.begins - TILE * own.tile;
#pragma unroll 1
        for (int pass = 0; pass < own.passes; ++pass) {
            const int from = own.first_of(pass);
            all.pass(first + from, own.first_of(pass + 1) - from, t & 1);
            __syncwarp();
            if (own.role != OWN && lane == 0) gate_arrive(ready + 8 * pass);
        }
    }
}

// What a warp needs to know to be the cell, for its group's units.
struct Cell {
    const Part& own;
    int warp, lane;
    float4 constants, means;  // of the lane's unit: peepholes, and the state that a window begins from; and what is below for all windows
    float* h_next;
    u64* line;  // of the lane's unit, or none
    int step, begins, predicts;  // windows, from the block's first on

    // From the sums of some tiles, from one on in the step's order, to h.
    template <int TILES>
    __device__ __forceinline__ void be(int from) const {
        typedef Several<TILES> Values;
        GatesOf<Values> x, sum;
        PeepholesOf<Values> w;
        Values state;
        int tiles[TILES];
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            tiles[i] = own.tile_at(from + i);
            const int place = own.place(tiles[i], warp, lane);
            const float4 gates = gates_of(own.sums[place], lane);
            const float kept = own.state[place];
            x.i.v[i] = means.x; x.f.v[i] = means.y; x.g.v[i] = means.z; x.o.v[i] = means.w;
            sum.i.v[i] = gates.x; sum.f.v[i] = gates.y; sum.g.v[i] = gates.z; sum.o.v[i] = gates.w;
            w.i.v[i] = constants.x; w.f.v[i] = constants.y; w.o.v[i] = constants.z;
            state.v[i] = TILE * tiles[i] + row_of(lane) == begins ? constants.w : kept;
        }
        const Values out = next(x, sum, state, w);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            if (tiles[i] == predicts / TILE) {  // a copy by each of the eight lanes that have the unit
                const float told = __shfl_sync(FULL, out.v[i], (lane & 24) | predicts % 2 * 4 | predicts % TILE / 2);
                if (line) tell(line, told, step);
            }
            const u32 halves = split(out.v[i]);
            put_in_matrices(matrices_of(h_next, own.group / 4, own.tile + tiles[i], own.all_tiles), own.group + warp, halves, lane);
#if CELL == GRU || CELL == RNN
            state.v[i] = joined(halves);
#endif
            own.state[own.place(tiles[i], warp, lane)] = state.v[i];
        }
    }
    __device__ __forceinline__ void be(int from, int end) const {
#pragma unroll 1
        while (from < end) {
            if (end - from >= 4) { be<4>(from); from += 4; }
            else if (end - from >= 2) { be<2>(from); from += 2; }
            else { be<1>(from); from += 1; }
        }
    }
};

// The warps that are the cell.
__device__ __forceinline__ void being_the_cell(const Arguments& a, Opening& open, int number, Doors& doors) {
    const Place& p = open.places[number];
    const Row& row = open.row;
    const Part own(a, p, number);
    if (own.role == OWN) return;
    const int warp = threadIdx.x / 32 % GROUPS, lane = threadIdx.x % 32, H = a.H, top = a.layers - 1, u = 4 * (own.group + warp) + lane / 8;
    const i64 half = (i64)own.all_tiles * TILE * H;
    const Peepholes w = peepholes_of(a, p, u);
#if CELL == GRU || CELL == RNN
    const float first_state = joined_at(a.weights + p.first_h, 0, u);
#else
    const float first_state = a.weights[p.first_c + u];
#endif
    Cell cell = {own, warp, lane, make_float4(w.i, w.f, w.o, first_state)};
    const bool at_hand = number == 0 && p.table >= 0;
    const float4* symbols = at_hand ? pool + p.table / 4 + 4 * warp + lane / 8 : (const float4*)(a.weights + p.bias) + u;
    const int apart = at_hand ? 4 * GROUPS : H, early = own.told_early(a.layers);
    cell.means = *symbols;
    for (int tile = 0; tile < own.tiles; ++tile)
#if CELL == GRU || CELL == RNN
        own.state[own.place(tile, warp, lane)] =
            joined_in_matrices(matrices_of(a.h + (2 * number + (a.now & 1)) * half, u / 16, own.tile + tile, own.all_tiles), row_of(lane), u);
#else
        own.state[own.place(tile, warp, lane)] = a.c[((i64)number * a.windows + min(TILE * (own.tile + tile) + row_of(lane), a.windows - 1)) * H + u];
#endif
    const volatile u64* told = nearest_copy(a) + copy_size(a) - TOLD;
    const u32 ready = address(doors.ready);
    volatile int* token = &doors.token;
    Turn turn(a, row);
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t, turn.next()) {
        const i64 now = a.now + t;
        const int first = turn.first(own);
        cell.h_next = a.h + (2 * number + (~now & 1)) * half;
        cell.line = number == top ? a.line + lane % 8 * copy_size(a) + (2 * number + (~now & 1)) * H + u : nullptr;
        cell.step = (int)now + 1;
        cell.begins = turn.begins - TILE * own.tile;
        const int predicts = turn.predicts - TILE * own.tile;
        cell.predicts = predicts >= 0 ? predicts : -TILE;
        if (number) {
#pragma unroll 1
            for (int pass = 0; pass < own.passes; ++pass) {
                const int end = own.first_of(pass + 1);
                gate_watch(ready + 8 * pass, t & 1);
                cell.be(first + own.first_of(pass), first + end);
                if (pass == 0) has_come(TOLD_DOOR, CELLS + 32);
                else if (end == own.tiles) has_come(TOLD_DOOR + 1, CELLS + 32);
            }
            continue;
        }
        for (int pass = 0; pass < own.passes; ++pass) gate_watch(ready + 8 * pass, t & 1);
        if (warp == 0) {  // one asks for all
            const bool given = t == 0 || now <= row.draws;
            const int id = !given ? asked(told, now) : turn.n < 0 ? 0 : now <= row.draws ? a.prompts[row.prompt + turn.n] : open.last;
            if (lane == 0) *token = id;
        }
        all_have_come(TOKEN_DOOR, CELLS);
        cell.means = symbols[(i64)*token * apart];
        cell.be(first, first + early);
        if (early) has_come(TOLD_DOOR, CELLS + 32);
        cell.be(first + early, first + own.tiles);
        if (early < own.tiles) has_come(TOLD_DOOR + 1, CELLS + 32);
    }
#if CELL != GRU && CELL != RNN
    for (int tile = 0; tile < own.tiles; ++tile) {
        const int at = TILE * (own.tile + tile) + row_of(lane);
        if (at < a.windows) a.c[((i64)number * a.windows + at) * H + u] = own.state[own.place(tile, warp, lane)];
    }
#endif
}

// Tells all what the block has written, the early tiles and the others. That takes a while; nobody waits for it.
__device__ __forceinline__ void telling(const Arguments& a, Opening& open, int number) {
    const Part own(a, open.places[number], number);
    if (own.role == OWN) return;
    const int lane = threadIdx.x % 32, early = own.told_early(a.layers);
    Turn turn(a, open.row);
#pragma unroll 1
    for (int t = 0; t < a.steps; ++t, turn.next())
#pragma unroll 1
        for (int others = 0; others < 2; ++others) {
            const int from = others ? early : 0, end = others ? own.tiles : early;
            if (from == end) continue;
            all_have_come(TOLD_DOOR + others, CELLS + 32);
            if (from + lane >= end) continue;
            const int tile = own.tile + own.tile_at(turn.first(own) + from + lane);
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(a.reached + (number * own.all_tiles + tile) * SPREAD) : "memory");
        }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32 * WINDOWS_WARPS, 1) windows(const __grid_constant__ Arguments a) {
    __shared__ Opening open;
    __shared__ Doors doors;
    const int warp = alike(threadIdx.x / 32), tiles = (a.windows + TILE - 1) / TILE;
    unsigned epoch = a.arrived[blockIdx.x];
    if ((int)threadIdx.x < a.layers) doors.begun[threadIdx.x] = a.reached[threadIdx.x * tiles * SPREAD];
    if (threadIdx.x < MOST_SLOTS) {
        gate_init(address(doors.full + threadIdx.x), 1);
        gate_init(address(doors.empty + threadIdx.x), GROUPS);
    }
    if (threadIdx.x < MOST_TILES) {
        gate_init(address(doors.mail + threadIdx.x), 1);
        gate_init(address(doors.ready + threadIdx.x), GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const int number = alike(open.number(a));
    const bool layers = number >= 0 && number < a.layers, chosen_here = blockIdx.x == open.places[a.layers + 1].block;
    if (layers) {
        const Place& p = open.places[number];
        const Part own(a, p, number);
        settle_weights(a, p, own);
        if (number == 0 && p.table >= 0)
            for (int n = threadIdx.x; n < a.V * 4 * GROUPS; n += blockDim.x)
                pool[p.table / 4 + n] = ((const float4*)(a.weights + p.bias))[(i64)(n / (4 * GROUPS)) * a.H + 4 * own.group + n % (4 * GROUPS)];
    } else if (number >= 0 && open.places[number].resident >= 0) {
        const Items own(open.places[number]);
        settle_groups(a, open.places[number], own.first, own.end - own.first);
    }
    asm volatile("fence.proxy.async;" ::: "memory");  // the matrix units read what was just written
    __syncthreads();
    // A block may draw, or count, or send, before another has seen what was drawn last and what the counts are, or can receive.
    meet<WINDOWS_WARPS>(a.arrived, epoch);
    if (number < 0) return;
    if (layers) {
        if (warp < GROUPS) multiplying(a, open, number, doors);
        else if (warp < 2 * GROUPS) being_the_cell(a, open, number, doors);
        else if (warp < 2 * GROUPS + BRINGERS) bringing(a, open, number, doors, warp % BRINGERS);
        else telling(a, open, number);
    } else if (warp == CHOOSER && chosen_here) {
        if (a.chooses) choosing(a, open.row, true, a.line + copy_size(a) - TOLD, COPIES, copy_size(a));
    } else if (warp < ALONE_WARPS) {
        heading(a, open.places[number], number > a.layers, chosen_here ? CHOOSER : ALONE_WARPS);
    }
}

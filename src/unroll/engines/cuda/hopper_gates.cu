// How a Hopper kernel waits: for copies that come to its shared memory by themselves, and for products.

__device__ __forceinline__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void gate_init(u32 gate, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(gate), "r"(count) : "memory");
}
__device__ __forceinline__ void gate_wait(u32 gate, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" :: "r"(gate), "r"(parity) : "memory");
}
// To ask takes a while: done early, the answer is there when it is needed. What it says no to is waited for.
__device__ __forceinline__ u32 gate_open(u32 gate, u32 parity) {
    u32 open;
    asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                 : "=r"(open) : "r"(gate), "r"(parity) : "memory");
    return open;
}
// A warp that is put to sleep wakes late. Where there is nobody to make room for, it looks again and again.
__device__ __forceinline__ void gate_watch(u32 gate, u32 parity) {
    while (!gate_open(gate, parity)) {}
}
__device__ __forceinline__ void gate_arrive(u32 gate) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(gate) : "memory");
}
__device__ __forceinline__ void gate_expect(u32 gate, u32 bytes) {  // and arrives
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(gate), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bring(u32 to, const void* from, u32 bytes, u32 gate) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(to), "l"(from), "r"(bytes), "r"(gate) : "memory");
}
__device__ __forceinline__ void fetch(u32 to, const void* from, u32 bytes, u32 gate) {
    gate_expect(gate, bytes);
    bring(to, from, bytes, gate);
}

__device__ __forceinline__ void product_begins() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void product_issued() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int COUNT> __device__ __forceinline__ void product_done(float (&d)[COUNT]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int v = 0; v < COUNT; ++v) asm volatile("" : "+f"(d[v]));
}

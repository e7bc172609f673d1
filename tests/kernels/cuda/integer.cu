// Integer arithmetic: 64-bit, division by variables, high products, bit tricks, packed and dot-product instructions.
#include <cstdint>

extern "C" __global__ void wide_integers(const long long* in, long long* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  long long a = in[t], b = in[(t + 1) % n];
  unsigned long long ua = a, ub = b | 1;
  long long* o = out + t;
  o[0] = a * b, o[n] = __mul64hi(a, b), o[2 * n] = (long long)__umul64hi(ua, ub), o[3 * n] = a / ((b >> 40) | 1);
  o[4 * n] = a % ((b >> 20) | 1), o[5 * n] = ua / ub, o[6 * n] = ua % (ub >> 33 | 1), o[7 * n] = a << (b & 63);
  o[8 * n] = a >> (b & 63), o[9 * n] = ua >> (ub & 63), o[10 * n] = a < b ? a - b : b - a, o[11 * n] = __clzll(a);
  o[12 * n] = __popcll(a) + __ffsll(b >> 7), o[13 * n] = __brevll(a), o[14 * n] = llabs(a) ^ max(a, b);
  unsigned __int128 w = (unsigned __int128)ua * ub + ua;
  o[15 * n] = (long long)(w >> 64) ^ (long long)w, o[16 * n] = (long long)(w >> (b & 127));
  __int128 s = (__int128)a * b - b;
  o[17 * n] = (long long)(s >> 70) + (s < 0);
  o[18 * n] = a > 0 && b > 0, o[19 * n] = (int)a * (long long)(int)b, o[20 * n] = (unsigned)a * (unsigned long long)(unsigned)b;
}

extern "C" __global__ void narrow_integers(const int* in, int* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  int a = in[t], b = in[(t + 1) % n], d = b >> (t & 31) | 1;
  unsigned ua = a, ub = b, ud = ub >> (t & 31) | 1;
  int* o = out + t;
  o[0] = a / d, o[n] = a % d, o[2 * n] = ua / ud, o[3 * n] = ua % ud, o[4 * n] = __mulhi(a, b), o[5 * n] = __umulhi(ua, ub);
  o[6 * n] = __mul24(a, b), o[7 * n] = __umul24(a, b), o[8 * n] = __sad(a, b, t), o[9 * n] = __usad(ua, ub, t);
  o[10 * n] = __brev(a), o[11 * n] = __clz(a >> (b & 31)), o[12 * n] = __ffs(a << (b & 31)), o[13 * n] = __popc(a);
  o[14 * n] = __byte_perm(a, b, in[(t + 2) % n]), o[15 * n] = __funnelshift_l(a, b, t), o[16 * n] = __funnelshift_r(a, b, b);
  o[17 * n] = __funnelshift_lc(a, b, b & 63), o[18 * n] = __funnelshift_rc(a, b, b & 63);
  o[19 * n] = __dp4a(a, b, t), o[20 * n] = __dp4a(ua, ub, (unsigned)t), o[21 * n] = __dp2a_lo(a, b, t), o[22 * n] = __dp2a_hi(ua, ub, (unsigned)t);
  o[23 * n] = __hadd(a, b), o[24 * n] = __rhadd(a, b), o[25 * n] = __uhadd(ua, ub), o[26 * n] = min(a, b) - max(a, b);
  o[27 * n] = (short)a * (short)b + (signed char)a * (unsigned char)b, o[28 * n] = (short)(a / ((short)b | 1)) % 7;
  o[29 * n] = a / 7 + a % 10 + ua / 1000 + ua % 641, o[30 * n] = a >> (b & 31) | ua << (t & 31), o[31 * n] = abs(a) ^ (a > b) ^ (ua > ub);
  o[32 * n] = __nv_bswap32(a);
}

extern "C" __global__ void packed_integers(const unsigned* in, unsigned* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  unsigned a = in[t], b = in[(t + 1) % n], *o = out + t;
  o[0] = __vadd4(a, b), o[n] = __vsub2(a, b), o[2 * n] = __vaddss2(a, b), o[3 * n] = __vaddus4(a, b), o[4 * n] = __vavgu4(a, b);
  o[5 * n] = __vabsdiffu4(a, b), o[6 * n] = __vsads4(a, b), o[7 * n] = __vcmpgts2(a, b), o[8 * n] = __vmaxs4(a, b), o[9 * n] = __vminu2(a, b);
  o[10 * n] = __vseteq4(a, b ^ (a & 0xff00)), o[11 * n] = __vnegss4(a), o[12 * n] = __vabsss2(a), o[13 * n] = __vhaddu2(a, b);
  o[14 * n] = __viaddmax_s32(a, b, t), o[15 * n] = __vimin3_u32(a, b, in[(t + 2) % n]), o[16 * n] = __vimax_s16x2_relu(a, b), o[17 * n] = __viaddmin_s16x2(a, b, 5);
}

// CRC-32, xorshift, multiply-with-carry and a 64-bit FNV hash over a string of bytes.
extern "C" __global__ void hashes(const uint8_t* in, int length, uint32_t* crc, uint32_t* rng, uint64_t* fnv) {
  int t = threadIdx.x;
  uint32_t c = ~0u, x = 2463534242u + t, z = 362436069u, w = 521288629u;
  uint64_t h = 14695981039346656037ull;
  for (int i = t; i < length; i += 3) {
    c ^= in[i];
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
    h = (h ^ in[i]) * 1099511628211ull;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    z = 36969 * (z & 65535) + (z >> 16) + in[i], w = 18000 * (w & 65535) + (w >> 16);
  }
  crc[t] = ~c, rng[t] = x + (z << 16) + w, fnv[t] = h;
}

// SHA-256 of one 64-byte block a thread.
__constant__ uint32_t K256[64] = {
  0x428a2f98,0x71374491,0xb5c0fbcf,0xe9b5dba5,0x3956c25b,0x59f111f1,0x923f82a4,0xab1c5ed5,0xd807aa98,0x12835b01,0x243185be,0x550c7dc3,0x72be5d74,0x80deb1fe,0x9bdc06a7,0xc19bf174,
  0xe49b69c1,0xefbe4786,0x0fc19dc6,0x240ca1cc,0x2de92c6f,0x4a7484aa,0x5cb0a9dc,0x76f988da,0x983e5152,0xa831c66d,0xb00327c8,0xbf597fc7,0xc6e00bf3,0xd5a79147,0x06ca6351,0x14292967,
  0x27b70a85,0x2e1b2138,0x4d2c6dfc,0x53380d13,0x650a7354,0x766a0abb,0x81c2c92e,0x92722c85,0xa2bfe8a1,0xa81a664b,0xc24b8b70,0xc76c51a3,0xd192e819,0xd6990624,0xf40e3585,0x106aa070,
  0x19a4c116,0x1e376c08,0x2748774c,0x34b0bcb5,0x391c0cb3,0x4ed8aa4a,0x5b9cca4f,0x682e6ff3,0x748f82ee,0x78a5636f,0x84c87814,0x8cc70208,0x90befffa,0xa4506ceb,0xbef9a3f7,0xc67178f2};
extern "C" __global__ void sha256(const uint32_t* in, uint32_t* out) {
  int t = threadIdx.x;
  uint32_t w[64], s[8] = {0x6a09e667,0xbb67ae85,0x3c6ef372,0xa54ff53a,0x510e527f,0x9b05688c,0x1f83d9ab,0x5be0cd19}, v[8];
  auto rot = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
  for (int i = 0; i < 16; i++) w[i] = __byte_perm(in[t * 16 + i], 0, 0x0123);
  for (int i = 16; i < 64; i++)
    w[i] = w[i - 16] + w[i - 7] + (rot(w[i - 15], 7) ^ rot(w[i - 15], 18) ^ w[i - 15] >> 3) + (rot(w[i - 2], 17) ^ rot(w[i - 2], 19) ^ w[i - 2] >> 10);
  for (int i = 0; i < 8; i++) v[i] = s[i];
#pragma unroll 1
  for (int i = 0; i < 64; i++) {
    uint32_t a = v[7] + (rot(v[4], 6) ^ rot(v[4], 11) ^ rot(v[4], 25)) + (v[4] & v[5] ^ ~v[4] & v[6]) + K256[i] + w[i];
    uint32_t b = (rot(v[0], 2) ^ rot(v[0], 13) ^ rot(v[0], 22)) + (v[0] & v[1] ^ v[0] & v[2] ^ v[1] & v[2]);
    for (int j = 7; j; j--) v[j] = v[j - 1];
    v[4] += a, v[0] = a + b;
  }
  for (int i = 0; i < 8; i++) out[t * 8 + i] = s[i] + v[i];
}

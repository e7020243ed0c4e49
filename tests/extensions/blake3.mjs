// BLAKE3 (unkeyed, 32 bytes), for decision 18. Written after the specification's reference implementation.

const IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19]
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
const CHUNK_START = 1
const CHUNK_END = 2
const PARENT = 4
const ROOT = 8
const BLOCK_BYTES = 64
const CHUNK_BYTES = 1024

const rotated = (word, by) => (word >>> by) | (word << (32 - by))

function mix(state, a, b, c, d, x, y) {
  state[a] = (state[a] + state[b] + x) | 0
  state[d] = rotated(state[d] ^ state[a], 16)
  state[c] = (state[c] + state[d]) | 0
  state[b] = rotated(state[b] ^ state[c], 12)
  state[a] = (state[a] + state[b] + y) | 0
  state[d] = rotated(state[d] ^ state[a], 8)
  state[c] = (state[c] + state[d]) | 0
  state[b] = rotated(state[b] ^ state[c], 7)
}

/** The first eight words of the compression: a chaining value, or the digest. */
function compress(chaining, words, counter, length, flags) {
  const state = Int32Array.from([...chaining, ...IV.slice(0, 4), counter, 0, length, flags])
  let message = words
  for (let round = 0; ; round++) {
    mix(state, 0, 4, 8, 12, message[0], message[1])
    mix(state, 1, 5, 9, 13, message[2], message[3])
    mix(state, 2, 6, 10, 14, message[4], message[5])
    mix(state, 3, 7, 11, 15, message[6], message[7])
    mix(state, 0, 5, 10, 15, message[8], message[9])
    mix(state, 1, 6, 11, 12, message[10], message[11])
    mix(state, 2, 7, 8, 13, message[12], message[13])
    mix(state, 3, 4, 9, 14, message[14], message[15])
    if (round === 6) return state.slice(0, 8).map((word, i) => word ^ state[i + 8])
    message = PERMUTATION.map((from) => message[from])
  }
}

/** The words of a block, padded with zeros. */
function wordsOf(bytes) {
  const block = Buffer.alloc(BLOCK_BYTES)
  block.set(bytes)
  return Array.from({ length: 16 }, (_, i) => block.readInt32LE(i * 4))
}

function chunk(bytes, counter, rootFlag) {
  let chaining = IV
  const blocks = Math.max(1, Math.ceil(bytes.length / BLOCK_BYTES))
  for (let n = 0; n < blocks; n++) {
    const block = bytes.subarray(n * BLOCK_BYTES, (n + 1) * BLOCK_BYTES)
    const last = n === blocks - 1
    const flags = (n === 0 ? CHUNK_START : 0) | (last ? CHUNK_END | rootFlag : 0)
    chaining = compress(chaining, wordsOf(block), counter, block.length, flags)
  }
  return chaining
}

/** The chaining value of a subtree: the left part is the largest power of two of whole chunks that leaves a right one. */
function tree(bytes, firstChunk, rootFlag) {
  if (bytes.length <= CHUNK_BYTES) return chunk(bytes, firstChunk, rootFlag)
  const chunks = Math.ceil(bytes.length / CHUNK_BYTES)
  const leftChunks = 2 ** Math.floor(Math.log2(chunks - 1))
  const left = tree(bytes.subarray(0, leftChunks * CHUNK_BYTES), firstChunk, 0)
  const right = tree(bytes.subarray(leftChunks * CHUNK_BYTES), firstChunk + leftChunks, 0)
  return compress(IV, [...left, ...right], 0, BLOCK_BYTES, PARENT | rootFlag)
}

/** The digest as lower-case hexadecimal digits. */
export function blake3(bytes) {
  const digest = Buffer.alloc(32)
  tree(bytes, 0, ROOT).forEach((word, i) => digest.writeInt32LE(word, i * 4))
  return digest.toString("hex")
}

/** Decision 18: over the length of the content type (u64, little-endian), the content type, the body. */
export function snapshotDigest(contentType, body) {
  const type = Buffer.from(contentType)
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(type.length))
  return blake3(Buffer.concat([length, type, body]))
}

// Section 4: append batch, and its records (6.11).

import assert from "node:assert/strict"

import {
  BYTES,
  Bucket,
  JSON_TYPE,
  TEXT,
  allRecords,
  clause,
  decision,
  frames,
  from,
  inParallel,
  range,
  readBytes,
  readValues,
} from "./harness.mjs"
import { openEvents } from "./http.mjs"

const bucket = await Bucket.create()
const FRAMES_MAX = 512

/** The acknowledgements of a batch that was answered 200. */
function acks(answer) {
  const array = answer.expect(200).json()
  assert.ok(Array.isArray(array), `${answer}`)
  return array
}

/** Fails unless the acknowledgement is a failure as 4.3 has it. */
function failed(ack, status) {
  assert.ok(ack.status >= 400, JSON.stringify(ack))
  if (status !== undefined) assert.equal(ack.status, status, JSON.stringify(ack))
  assert.equal(typeof ack.error_code, "string", JSON.stringify(ack))
  assert.equal(typeof ack.error, "string", JSON.stringify(ack))
}

/** Fails unless the acknowledgement is a success as 4.3 has it. */
function succeeded(ack) {
  assert.ok(ack.status >= 200 && ack.status < 300, JSON.stringify(ack))
  assert.ok(Number.isInteger(ack.stream_next_offset), JSON.stringify(ack))
  assert.ok(!("error_code" in ack) && !("error" in ack), JSON.stringify(ack))
}

/** A body of raw bytes: numbers are 32-bit lengths, the rest is payload. */
const raw = (...pieces) =>
  Buffer.concat(
    pieces.map((piece) => {
      if (typeof piece !== "number") return Buffer.from(piece)
      const length = Buffer.alloc(4)
      length.writeUInt32BE(piece)
      return length
    }),
  )

/** Fails unless the request, or every frame of it, was refused with 4xx. Returns what the stream holds. */
async function contentAfterRefusal(stream, answer) {
  const content = String(await readBytes(stream))
  if (answer.status === 200) for (const ack of acks(answer)) failed(ack)
  else assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
  return content
}

// --- 4.1

clause("4.1", "a frame is a length of 32 bits in network byte order, and so many bytes", async () => {
  const stream = await bucket.make(BYTES)
  const payloads = [1, 255, 256, 257, 65_535, 65_536, 70_000].map((length, n) => Buffer.alloc(length, 97 + n))
  const answer = await stream.batch(frames(payloads))
  assert.equal(acks(answer).length, payloads.length)
  assert.ok((await readBytes(stream)).equals(Buffer.concat(payloads)))
})

clause("4.1", "a large frame: 4 MiB and a byte", async () => {
  const stream = await bucket.make(BYTES)
  const payload = Buffer.alloc(4 * 1024 * 1024 + 1, "0123456789abcdefg")
  for (const ack of acks(await stream.batch(frames(["small", payload, "small"])))) succeeded(ack)
  assert.ok((await readBytes(stream)).equals(Buffer.concat([Buffer.from("small"), payload, Buffer.from("small")])))
})

clause("4.1", "binary payloads are taken as they are, also those that look like frames", async () => {
  const stream = await bucket.make(BYTES)
  const payloads = [
    Buffer.from([0, 0, 0, 1, 97]),
    Buffer.from([0, 0, 0, 0]),
    Buffer.from(range(0, 256)),
    Buffer.from("\r\n"),
  ]
  assert.equal(acks(await stream.batch(frames(payloads))).length, payloads.length)
  assert.ok((await readBytes(stream)).equals(Buffer.concat(payloads)))
})

clause("4.1", "a batch that comes in chunks, cut inside a frame, is a batch", async () => {
  const stream = await bucket.make(TEXT)
  const headers = { "Content-Type": TEXT }
  const body = frames(["one,", "a longer frame,", "three"])
  const answer = await stream.request("POST", "/append-batch", { body, chunked: true, headers })
  assert.equal(acks(answer).length, 3)
  assert.equal(String(await readBytes(stream)), "one,a longer frame,three")
})

clause("4.1", "Content-Type MUST match the stream's: otherwise nothing is committed", async () => {
  const stream = await bucket.make(TEXT, { body: "kept" })
  const answer = await stream.batch(frames(["a", "b"]), { "Content-Type": BYTES })
  assert.equal(await contentAfterRefusal(stream, answer), "kept")
})

clause("4.1", "zero-length frames are invalid", async () => {
  const stream = await bucket.make(TEXT)
  const answer = await stream.batch(raw(1, "a", 0, 1, "b"))
  if (answer.status === 200) failed(acks(answer)[1])
  else assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
})

clause("4.1", "512 frames are accepted", async () => {
  const stream = await bucket.make(TEXT)
  const payloads = range(0, FRAMES_MAX).map((n) => `${n},`)
  const answered = acks(await stream.batch(frames(payloads)))
  assert.equal(answered.length, FRAMES_MAX)
  answered.forEach(succeeded)
  assert.equal(String(await readBytes(stream)), payloads.join(""))
})

clause("4.1", "a batch that is too large: 413, or all of it is committed", async () => {
  const stream = await bucket.make(TEXT)
  const count = 20_000
  const answer = await stream.batch(frames(range(0, count).map(() => "x")))
  if (answer.status === 200) assert.equal(acks(answer).length, count)
  else answer.expect(413)
  assert.equal((await readBytes(stream)).length, answer.status === 200 ? count : 0)
})

// --- 4.3

clause("4.3", "200 with a JSON array, one acknowledgement a frame, in the order of the frames", async () => {
  const stream = await bucket.make(TEXT)
  const answer = await stream.batch(frames(["one", "two", "three"]))
  assert.equal(answer.mediaType, JSON_TYPE)
  const answered = acks(answer)
  assert.equal(answered.length, 3)
  answered.forEach(succeeded)
  const [one, two, three] = answered.map((ack) => ack.stream_next_offset)
  assert.ok(one < two && two < three, `${[one, two, three]}`)
})

clause(
  "4.3",
  "a frame-level failure is reported in the array: error_code, error, and the outer status is 200",
  async () => {
    const stream = await bucket.make(JSON_TYPE)
    const answered = acks(await stream.batch(frames(["1", "{", "2"])))
    succeeded(answered[0])
    failed(answered[1], 400)
    succeeded(answered[2])
    assert.deepEqual(await readValues(stream), [1, 2])
  },
)

clause("4.3", "stream_closed is present and true if the append observes a closed stream", async () => {
  const stream = await bucket.make(TEXT, { body: "kept" })
  assert.ok(!acks(await stream.batch(frames([" open"])))[0].stream_closed)
  await stream.close()
  const answered = acks(await stream.batch(frames(["a", "b"])))
  assert.equal(answered.length, 2)
  for (const ack of answered) {
    failed(ack, 409)
    assert.equal(ack.stream_closed, true)
  }
  assert.equal(String(await readBytes(stream)), "kept open")
})

for (const [what, body] of [
  ["no frame", raw()],
  ["a cut length", raw(1, "a", "\0\0")],
  ["a cut payload", raw(1, "a", 5, "bc")],
  ["a length beyond every body", raw(1, "a", 0xffffffff, "bc")],
]) {
  clause("4.3", `malformed framing fails with 400 or 413: ${what}`, async () => {
    const stream = await bucket.make(TEXT, { body: "kept" })
    const answer = await stream.batch(body)
    if (answer.status === 200)
      assert.ok(
        acks(answer).some((ack) => ack.status >= 400),
        `${answer}`,
      )
    else answer.expect(400, 413)
    assert.ok(["kept", "kepta"].includes(String(await readBytes(stream))))
  })
}

clause("1.6", "a missing stream or bucket: 404", async () => {
  ;(await bucket.stream(TEXT).batch(frames(["a"]))).expect(404)
})

// --- 4, 4.4

clause("4", "frames MUST NOT be concatenated into one record: each is its own message", async () => {
  const stream = await bucket.make(JSON_TYPE)
  acks(await stream.batch(frames(["1", "2", "3"])))
  assert.deepEqual(await readValues(stream), [1, 2, 3])
  assert.equal((await stream.head()).header("Stream-Record-Next"), "3")
})

clause("4.4", "frames are committed in request order", async () => {
  const stream = await bucket.make(JSON_TYPE)
  for (const start of range(0, 4)) {
    acks(await stream.batch(frames(range(start * 300, (start + 1) * 300).map(String)))).forEach(succeeded)
  }
  assert.deepEqual(await readValues(stream), range(0, 1200))
})

clause("4.4", "successful frames advance the same offsets that POST would have produced", async () => {
  const parts = ["one", "twotwo", "3"]
  const [batched, posted] = [await bucket.make(TEXT), await bucket.make(TEXT)]
  acks(await batched.batch(frames(parts)))
  for (const part of parts) await posted.append(part)
  // What the listing shows as a number, the acknowledgement of a batch shows too.
  const entries = (await bucket.list(`?prefix=s-`)).json().streams
  const tailOf = (stream) => entries.find((entry) => entry.stream_id === stream.id).tail_offset
  assert.equal(tailOf(batched), tailOf(posted))
  const last = acks(await batched.batch(frames(["four"])))[0].stream_next_offset
  await posted.append("four")
  const again = (await bucket.list(`?prefix=s-`)).json().streams.find((entry) => entry.stream_id === posted.id)
  assert.equal(last, again.tail_offset)
})

clause("4.4", "an offset from before a batch reads exactly the batch, and single appends go on after it", async () => {
  const stream = await bucket.make(TEXT)
  const { offset } = await stream.append("before,")
  acks(await stream.batch(frames(["a,", "b,"])))
  const { offset: end } = await stream.append("after")
  assert.equal(String(await readBytes(stream, offset)), "a,b,after")
  assert.equal(await stream.tail(), end)
})

clause("4.4", "what a batch appended is read by long-poll, SSE and bootstrap like anything else", async (t) => {
  const stream = await bucket.make(TEXT)
  const start = await stream.tail()
  const poll = stream.get(from(start, "&live=long-poll"))
  const events = await openEvents(t, `${stream.path}${from(start, "&live=sse")}`)
  acks(await stream.batch(frames(["one,", "two"])))
  // A reader may see the first frame alone; it must see all of it in the end.
  const first = (await poll).expect(200)
  const rest = String(await readBytes(stream, first.require("Stream-Next-Offset")))
  assert.ok(first.text.length > 0)
  assert.equal(first.text + rest, "one,two")
  let seen = ""
  while (seen.length < 7) seen += (await events.nextPair()).data
  assert.equal(seen, "one,two")
  assert.deepEqual(
    (await stream.bootstrap()).updates.map((part) => part.text),
    ["one,", "two"],
  )
})

clause(
  "4.4",
  "concurrent batches: each frame is there once, and the frames of one batch keep their order",
  async () => {
    const stream = await bucket.make(JSON_TYPE)
    await inParallel(range(0, 12), (writer) =>
      stream.batch(frames(range(0, 40).map((n) => JSON.stringify({ writer, n })))),
    )
    const values = await readValues(stream)
    assert.equal(values.length, 480)
    for (const writer of range(0, 12)) {
      assert.deepEqual(
        values.filter((value) => value.writer === writer).map((value) => value.n),
        range(0, 40),
      )
    }
  },
)

// --- 6.11

clause(
  "6.11",
  "acknowledgements of a JSON stream MUST include stream_record_start and stream_record_next",
  async () => {
    const stream = await bucket.records(["before"])
    const answered = acks(await stream.batch(frames(["1", "[2,3,4]", '{"n":5}'])))
    assert.deepEqual(
      answered.map((ack) => [ack.stream_record_start, ack.stream_record_next]),
      [
        [1, 2],
        [2, 5],
        [5, 6],
      ],
    )
    assert.deepEqual(await readValues(stream), ["before", 1, 2, 3, 4, { n: 5 }])
  },
)

clause("6.11", "a failed frame assigns no ordinal; later frames continue from the last committed tail", async () => {
  const stream = await bucket.records()
  const answered = acks(await stream.batch(frames(["1", "[2,", "[]", "[3,4]", "nope", "5"])))
  const ranges = answered.map((ack) =>
    ack.status < 300 ? [ack.stream_record_start, ack.stream_record_next] : "failed",
  )
  assert.deepEqual(ranges, [[0, 1], "failed", "failed", [1, 3], "failed", [3, 4]])
  for (const n of [1, 2, 4]) failed(answered[n], 400)
  assert.deepEqual((await allRecords(stream)).values, [1, 3, 4, 5])
})

clause("6.11", "a frame that is an array is one atomic range", async () => {
  const stream = await bucket.records()
  await inParallel(range(0, 8), async (writer) => {
    const answered = acks(
      await stream.batch(
        frames(
          range(0, 10).map((n) =>
            JSON.stringify([
              [writer, n],
              [writer, n],
            ]),
          ),
        ),
      ),
    )
    for (const ack of answered) assert.equal(ack.stream_record_next - ack.stream_record_start, 2)
  })
  const values = await readValues(stream)
  for (const at of range(0, 80)) assert.deepEqual(values[2 * at], values[2 * at + 1], `records ${2 * at} and the next`)
})

clause("6.11", "large frames among small ones: each has its own range, and a bad one in between has none", async () => {
  const stream = await bucket.records()
  const large = (name) => range(0, 50).map((n) => ({ name, n, text: "f".repeat(100_000) }))
  const payloads = [["a"], large("one"), undefined, ["b", "c"], large("two"), ["d"]]
  const body = frames(payloads.map((values) => (values ? JSON.stringify(values) : `[${"1,".repeat(3_000_000)}`)))
  const answered = acks(await stream.batch(body))
  const ranges = answered.map((ack) =>
    ack.status < 300 ? [ack.stream_record_start, ack.stream_record_next] : "failed",
  )
  assert.deepEqual(ranges, [[0, 1], [1, 51], "failed", [51, 53], [53, 103], [103, 104]])
  const { values } = await allRecords(stream)
  assert.deepEqual(
    values,
    payloads.flatMap((part) => part ?? []),
  )
})

clause("6.11", "a byte stream's acknowledgements have no record range", async () => {
  const stream = await bucket.make(TEXT)
  const [ack] = acks(await stream.batch(frames(["a"])))
  assert.ok(!("stream_record_start" in ack) && !("stream_record_next" in ack), JSON.stringify(ack))
})

// --- what only the decisions say

decision(
  16,
  "4.1",
  "a zero-length frame, a cut frame or no frame: 400 for the whole request, nothing is committed",
  async () => {
    const stream = await bucket.make(TEXT)
    for (const body of [
      raw(),
      raw(0),
      raw(1, "a", 0, 1, "b"),
      raw(1, "a", "\0"),
      raw(1, "a", 9, "b"),
      raw(1, "a", 0xffffffff),
    ]) {
      ;(await stream.batch(body)).expect(400)
    }
    assert.equal((await readBytes(stream)).length, 0)
  },
)

decision(16, "4.3", "a missing Content-Type: 400 for the whole request", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.request("POST", "/append-batch", { body: frames(["a"]) })).expect(400)
  assert.equal((await readBytes(stream)).length, 0)
})

for (const [name, value] of [
  ["Stream-Closed", "true"],
  ["Stream-Closed", "TRUE"],
  ["Producer-Id", "p"],
  ["Producer-Epoch", "0"],
  ["Producer-Seq", "0"],
  ["Stream-Record-Match", "0"],
  ["Stream-Seq", "1"],
]) {
  decision(
    16,
    "4.2",
    `${name}: ${value} is not supported: 400 for the whole request, nothing is committed`,
    async () => {
      const stream = await bucket.records()
      ;(await stream.batch(frames(["1"]), { [name]: value })).expect(400)
      const head = (await stream.head()).expect(200)
      assert.equal(head.header("Stream-Record-Next"), "0")
      assert.equal(head.header("Stream-Closed"), undefined)
    },
  )
}

decision(16, "4.2", "a Stream-Closed that is not true does not count", async () => {
  const stream = await bucket.make(TEXT)
  succeeded(acks(await stream.batch(frames(["a"]), { "Stream-Closed": "false" }))[0])
})

decision(16, "4.1", "513 frames: 413, nothing is committed", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.batch(frames(range(0, FRAMES_MAX + 1).map(() => "x")))).expect(413)
  assert.equal((await readBytes(stream)).length, 0)
})

decision(16, "4.1", "32 MiB are accepted, a byte more is 413 and commits nothing", async () => {
  const bytesMax = 32 * 1024 * 1024
  const stream = await bucket.make(BYTES)
  ;(await stream.batch(raw(bytesMax - 4 + 1, Buffer.alloc(bytesMax - 4 + 1)))).expect(413)
  const head = (await stream.head()).expect(200)
  succeeded(acks(await stream.batch(raw(bytesMax - 4, Buffer.alloc(bytesMax - 4))))[0])
  assert.notEqual(await stream.tail(), head.header("Stream-Next-Offset"))
})

decision(16, "4.1", "a content type that differs from the stream's: every frame 409", async () => {
  const stream = await bucket.make(TEXT)
  for (const ack of acks(await stream.batch(frames(["a", "b"]), { "Content-Type": BYTES }))) failed(ack, 409)
})

decision(9, "4.3", "stream_next_offset is the byte position", async () => {
  const stream = await bucket.make(TEXT, { body: "12345" })
  const answered = acks(await stream.batch(frames(["abc", "d"])))
  assert.deepEqual(
    answered.map((ack) => ack.stream_next_offset),
    [8, 9],
  )
  assert.equal(String(await readBytes(stream, "8")), "d", "which is accepted as an offset")
})

decision(5, "4.3", "error_code in acknowledgements is UPPER_SNAKE, and the array has no white space", async () => {
  const stream = await bucket.records()
  const answer = await stream.batch(frames(["{", "[]", "1"]))
  for (const ack of acks(answer).slice(0, 2)) assert.match(ack.error_code, /^[A-Z]+(_[A-Z]+)*$/)
  assert.equal(answer.text, JSON.stringify(answer.json()))
})

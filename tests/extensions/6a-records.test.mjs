// Sections 6.1 to 6.5: the record model, acknowledgements, conditional appends, HEAD.

import assert from "node:assert/strict"

import {
  BYTES,
  Bucket,
  JSON_TYPE,
  TEXT,
  acknowledgement,
  allRecords,
  clause,
  decision,
  inParallel,
  integer,
  range,
  readBytes,
  readValues,
} from "./harness.mjs"
import { sendSlowly } from "./http.mjs"

const bucket = await Bucket.create()

const producer = (seq, epoch = 0, id = "p") => ({
  "Producer-Id": id,
  "Producer-Epoch": String(epoch),
  "Producer-Seq": String(seq),
})

/** F and N as HEAD has them. */
async function coordinates(stream) {
  const head = (await stream.head()).expect(200)
  return [integer(head.require("Stream-Record-First")), integer(head.require("Stream-Record-Next"))]
}

const rangeOf = ({ start, next }) => [start, next]

// --- 6.1

clause("6.1", "a new empty stream has F = N = 0", async () => {
  assert.deepEqual(await coordinates(await bucket.records()), [0, 0])
})

clause("6.1", "ordinals are zero-based and consecutive in committed order", async () => {
  const stream = await bucket.records()
  for (const n of range(0, 12)) assert.deepEqual(rangeOf(await stream.append({ n })), [n, n + 1])
  assert.deepEqual(
    (await allRecords(stream)).values,
    range(0, 12).map((n) => ({ n })),
  )
})

clause("6.1", "ordinals are scoped to one stream", async () => {
  const [one, two] = [await bucket.records(), await bucket.records()]
  for (const n of range(0, 5)) {
    assert.equal((await one.append(n)).start, n)
    assert.equal((await two.append([n, n])).start, 2 * n)
  }
})

for (const value of [{ a: [1, { b: null }] }, "text", "", 0, -1.5, true, false, null]) {
  clause("6.1", `a non-array JSON value creates one record: ${JSON.stringify(value)}`, async () => {
    const stream = await bucket.records()
    assert.deepEqual(rangeOf(await stream.append(value)), [0, 1])
    assert.deepEqual((await allRecords(stream)).values, [value])
    const created = await bucket.make(JSON_TYPE, { body: JSON.stringify(value) })
    assert.deepEqual(await coordinates(created), [0, 1])
  })
}

clause("6.1", "a top-level array creates one record per element, after exactly one level of flattening", async () => {
  const stream = await bucket.records()
  const body = [1, [2, 3], [[4]], [], {}, "five", null, [null]]
  assert.deepEqual(rangeOf(await stream.append(body)), [0, body.length])
  assert.deepEqual((await allRecords(stream)).values, body)
  assert.deepEqual(await readValues(stream), body)
})

clause("6.1", "an array that holds one empty array is one record", async () => {
  const stream = await bucket.records()
  assert.deepEqual(rangeOf(await stream.append([[]])), [0, 1])
  assert.deepEqual((await allRecords(stream)).values, [[]])
})

clause("6.1", "an empty array creates no records on PUT", async () => {
  for (const body of ["[]", " [ ] "]) {
    const stream = bucket.stream(JSON_TYPE)
    const created = acknowledgement((await stream.put({ body })).expect(201))
    assert.deepEqual(rangeOf(created), [0, 0])
    assert.deepEqual(await coordinates(stream), [0, 0])
    assert.deepEqual(await readValues(stream), [])
  }
})

clause("6.1", "an empty array remains invalid on POST", async () => {
  const stream = await bucket.records([1])
  for (const body of ["[]", " [\n] "]) (await stream.post(body)).expect(400)
  assert.deepEqual(await coordinates(stream), [0, 1])
})

clause("6.1", "what is in a record makes no boundary: line breaks, separators, brackets, escapes", async () => {
  const values = ["a\nb", "\r\n", ",", "][", '"', "\\", "\u2028\u2029", "\0", { "a,b": "}{" }, "}\n{", ["\n"], "😀"]
  const stream = await bucket.records()
  assert.deepEqual(rangeOf(await stream.append(values)), [0, values.length])
  assert.deepEqual((await allRecords(stream)).values, values)
  for (const [n, value] of values.entries()) {
    assert.deepEqual((await stream.readRecords(`?record=${n}&max_records=1`)).values, [value])
  }
})

clause("6.1", "an ordinal MUST NOT be reused: a refused append takes none, a deleted tail does not exist", async () => {
  const stream = await bucket.records(["a"])
  for (const body of ["{", "[1,2", "[1,]", "nope", "[]", "1 2", '"\n"']) {
    assert.equal((await stream.post(body)).status, 400, body)
  }
  ;(await stream.post("1", { "Content-Type": TEXT })).expect(409)
  assert.deepEqual(rangeOf(await stream.append("b")), [1, 2])
  assert.deepEqual((await allRecords(stream)).values, ["a", "b"])
})

clause("6.1", "ordinals are independent of Stream-Seq, producer sequences and numbers inside the values", async () => {
  const stream = await bucket.records()
  assert.equal((await stream.append({ seq: 900 }, { "Stream-Seq": "500" })).start, 0)
  assert.equal((await stream.append({ seq: 3 }, { "Stream-Seq": "77777" })).start, 1)
  assert.equal((await stream.append([{ seq: 2 }, { seq: 1 }], producer(0, 9))).start, 2)
  assert.equal((await stream.append({ record: 0 }, producer(1, 9))).start, 4)
})

// --- 6.2

clause("6.2", "client event times out of order MUST NOT change committed order or ordinals", async () => {
  const times = ["2026-07-18T10:00:02Z", "2026-07-18T10:00:01Z", "1999-01-01T00:00:00Z", "2026-07-18T10:00:03Z"]
  const stream = await bucket.records()
  for (const captured_at of times) await stream.append({ captured_at })
  assert.deepEqual(
    (await allRecords(stream)).values.map((value) => value.captured_at),
    times,
  )
  assert.deepEqual(
    (await readValues(stream)).map((value) => value.captured_at),
    times,
  )
})

// --- 6.3

clause("6.3", "PUT with initial messages MUST include Stream-Record-Start and Stream-Record-Next", async () => {
  for (const [body, next] of [
    ["[1,2,3]", 3],
    ['{"a":1}', 1],
    ["[[1,2]]", 1],
  ]) {
    const stream = bucket.stream(JSON_TYPE)
    assert.deepEqual(rangeOf(acknowledgement((await stream.put({ body })).expect(201))), [0, next])
    assert.deepEqual(await coordinates(stream), [0, next])
  }
})

clause("6.3", "POST MUST include the range that it appended", async () => {
  const stream = await bucket.records()
  assert.deepEqual(rangeOf(await stream.append("a")), [0, 1])
  assert.deepEqual(rangeOf(await stream.append(["b", "c", "d"])), [1, 4])
  assert.deepEqual(rangeOf(await stream.append(["e"])), [4, 5])
  assert.deepEqual(rangeOf(await stream.append("f", { "Stream-Closed": "true" })), [5, 6])
})

clause("6.3", "an operation that creates no records: both equal the current tail", async () => {
  const stream = bucket.stream(JSON_TYPE)
  assert.deepEqual(rangeOf(acknowledgement((await stream.put()).expect(201))), [0, 0])
  await stream.append([1, 2, 3])
  assert.deepEqual(rangeOf(acknowledgement((await stream.put()).expect(200))), [3, 3], "creating what exists")
  assert.deepEqual(rangeOf(acknowledgement(await stream.close())), [3, 3], "closing without a body")
  assert.deepEqual(rangeOf(acknowledgement(await stream.close())), [3, 3], "closing again")
})

clause("6.3", "a stream that is created closed with its content has its range", async () => {
  const stream = bucket.stream(JSON_TYPE)
  const created = (await stream.put({ body: "[1,2]", headers: { "Stream-Closed": "true" } })).expect(201)
  assert.deepEqual(rangeOf(acknowledgement(created)), [0, 2])
})

clause("6.3", "all messages of one request commit atomically, or no ordinal becomes visible", async () => {
  const stream = await bucket.records(["a"])
  const big = range(0, 5000).map((n) => ({ n }))
  const text = JSON.stringify(big)
  for (const body of [`${text.slice(0, -1)},{]`, text.slice(0, -1), `${text}]`, `${text}1`]) {
    ;(await stream.post(body)).expect(400)
    assert.deepEqual(await coordinates(stream), [0, 1])
  }
  assert.deepEqual(rangeOf(await stream.append(big)), [1, 5001])
  assert.deepEqual((await allRecords(stream, 1)).values, big)
})

clause("6.3", "readers never see a part of an append: every tail is the end of one", async () => {
  const stream = await bucket.records()
  let writing = true
  const writer = (async () => {
    for (const n of range(0, 60)) await stream.append(range(0, 7).map((k) => [n, k]))
    writing = false
  })()
  do {
    const [, next] = await coordinates(stream)
    assert.equal(next % 7, 0, `the tail ${next} is inside an append of 7`)
    const page = await stream.readRecords("?record=0")
    if (page.answer.header("Stream-Up-To-Date") === "true") assert.equal(page.next % 7, 0, `${page.next}`)
  } while (writing)
  await writer
})

clause("6.3", "concurrent appenders MUST receive disjoint ranges in committed order", async () => {
  const stream = await bucket.records()
  const appends = range(0, 120)
  const acks = await inParallel(appends, (n) => stream.append(range(0, 1 + (n % 5)).map((k) => ({ n, k }))))
  const sorted = acks.map((ack, n) => ({ ...ack, n })).sort((a, b) => a.start - b.start)
  let at = 0
  for (const { start, next, n } of sorted) {
    assert.equal(start, at, `append ${n} does not begin where the one before it ends`)
    assert.equal(next - start, 1 + (n % 5), `append ${n}`)
    at = next
  }
  assert.deepEqual(await coordinates(stream), [0, at])
  const { values } = await allRecords(stream)
  const expected = sorted.flatMap(({ n }) => range(0, 1 + (n % 5)).map((k) => ({ n, k })))
  assert.deepEqual(values, expected, "the ranges that were acknowledged are where the values are")
})

clause("6.3", "a large append is one range, too: 9 MB among small ones, with a duplicate of it", async () => {
  const stream = await bucket.records()
  const large = range(0, 3000).map((n) => ({ n, text: "m".repeat(2900 + (n % 200)) }))
  const sendLarge = () => stream.append(large, producer(0))
  let appending = true
  const smalls = []
  const writer = (async () => {
    while (appending) smalls.push(await stream.append(["small"]))
  })()
  const [first, second] = await Promise.all([sendLarge(), sendLarge()])
  appending = false
  await writer
  assert.equal(first.next - first.start, 3000)
  assert.deepEqual(rangeOf(second), rangeOf(first))
  for (const { start } of smalls) assert.ok(start < first.start || start >= first.next, `a small append at ${start}`)
  const { values } = await allRecords(stream)
  assert.equal(values.length, 3000 + smalls.length)
  assert.deepEqual(values.slice(first.start, first.next), large)
  // Each record of it has its place.
  for (const record of [first.start, first.start + 1400, first.next - 1]) {
    const page = await stream.readRecords(`?record=${record}&max_records=1`)
    assert.deepEqual(page.values, [large[record - first.start]])
  }
  ;(await stream.publishAtRecord(first.start + 1500, "folded")).expect(204)
  assert.equal((await stream.bootstrap()).updates.length, values.length - first.start - 1500)
})

clause(
  "6.4",
  "a large append with a Stream-Record-Match that no longer holds at its end is 412, and leaves nothing",
  async () => {
    const stream = await bucket.records()
    const large = JSON.stringify(range(0, 100).map((n) => ({ n, text: "m".repeat(60_000) })))
    const upload = await sendSlowly("POST", stream.path, {
      headers: { "Content-Type": JSON_TYPE, "Stream-Record-Match": "0" },
      length: large.length,
      firstBytes: large.slice(0, 1000),
    })
    await stream.append("first")
    ;(await upload.finish(large.slice(1000))).expect(412)
    assert.deepEqual(await coordinates(stream), [0, 1])
    ;(await stream.post(large, { "Stream-Record-Match": "1" })).ok()
    assert.deepEqual(await coordinates(stream), [0, 101])
  },
)

clause("6.3", "one appender's acknowledgements grow: Stream-Next-Offset and ordinals order alike", async () => {
  const stream = await bucket.records()
  const acks = []
  for (const n of range(0, 20)) acks.push(await stream.append(n))
  const offsets = acks.map((ack) => ack.offset)
  assert.deepEqual(offsets, [...offsets].sort(), "offsets sort as text, base protocol 6")
})

clause("6.3", "a deduplicated retry MUST return the original range", async () => {
  const stream = await bucket.records(["before"])
  const first = await stream.append(["a", "b", "c"], producer(0))
  assert.deepEqual(rangeOf(first), [1, 4])
  await stream.append(["other", "other"])
  const retry = await stream.append(["a", "b", "c"], producer(0))
  assert.deepEqual(rangeOf(retry), [1, 4])
  assert.deepEqual(await coordinates(stream), [0, 6])
})

clause("6.3", "a retry whose first answer was lost in flight: concurrent duplicates all return one range", async () => {
  const stream = await bucket.records(["before"])
  const acks = await inParallel(range(0, 12), () => stream.append(["a", "b"], producer(0)))
  for (const ack of acks) assert.deepEqual(rangeOf(ack), [1, 3])
  assert.deepEqual((await allRecords(stream)).values, ["before", "a", "b"])
})

clause("6.3", "a retry of the append that closed the stream returns its original range", async () => {
  const stream = await bucket.records(["a"])
  const closing = () => stream.append(["b", "c"], { ...producer(0), "Stream-Closed": "true" })
  assert.deepEqual(rangeOf(await closing()), [1, 3])
  assert.deepEqual(rangeOf(await closing()), [1, 3])
  assert.deepEqual(await coordinates(stream), [0, 3])
})

decision(
  22,
  "6.3",
  "a duplicate of any earlier sequence of the epoch returns its own range and offset, also when closed",
  async () => {
    const stream = await bucket.records()
    const send = (seq) =>
      stream.append(
        range(0, 1 + (seq % 3)).map((k) => [seq, k]),
        producer(seq),
      )
    const originals = []
    for (const seq of range(0, 40)) {
      originals.push(await send(seq))
      if (seq % 4 === 0) await stream.append("between")
    }
    await stream.close()
    for (const seq of [0, 1, 17, 38, 39]) {
      const again = await send(seq)
      again.answer.expect(204)
      assert.deepEqual(rangeOf(again), rangeOf(originals[seq]), `sequence ${seq}`)
      assert.equal(again.offset, originals[seq].offset, `sequence ${seq}`)
    }
  },
)

// --- 6.4

clause("6.4", "Stream-Record-Match that equals N: the append is accepted", async () => {
  const stream = await bucket.records()
  assert.deepEqual(rangeOf(await stream.append("a", { "Stream-Record-Match": "0" })), [0, 1])
  assert.deepEqual(rangeOf(await stream.append(["b", "c"], { "Stream-Record-Match": "1" })), [1, 3])
  assert.deepEqual(rangeOf(await stream.append("d", { "Stream-Record-Match": "3" })), [3, 4])
})

clause(
  "6.4",
  "a mismatch MUST be 412 with Stream-Record-Next and Stream-Next-Offset, and appends nothing",
  async () => {
    const stream = await bucket.records(["a", "b"])
    const tail = await stream.tail()
    for (const match of ["0", "1", "3", "9007199254740991"]) {
      const answer = (await stream.post('"c"', { "Stream-Record-Match": match })).expect(412)
      assert.equal(answer.header("Stream-Record-Next"), "2", `${answer}`)
      assert.equal(answer.header("Stream-Next-Offset"), tail, `${answer}`)
    }
    assert.deepEqual(await coordinates(stream), [0, 2])
    assert.deepEqual((await allRecords(stream)).values, ["a", "b"])
  },
)

clause("6.4", "the match is against N, not against the number of retained records", async () => {
  const stream = await bucket.records(range(0, 5))
  await stream.trimBefore(3)
  ;(await stream.post("5", { "Stream-Record-Match": "2" })).expect(412)
  assert.equal((await stream.append(5, { "Stream-Record-Match": "5" })).start, 5)
})

clause("6.4", "of concurrent writers that match the same tail exactly one is accepted", async () => {
  const stream = await bucket.records()
  for (const n of range(0, 5)) {
    const answers = await inParallel(range(0, 12), (writer) =>
      stream.post(JSON.stringify({ n, writer }), { "Stream-Record-Match": String(n) }),
    )
    const won = answers.filter((answer) => answer.status < 300)
    assert.equal(won.length, 1, answers.map((answer) => answer.status).join(" "))
    for (const answer of answers.filter((answer) => answer.status >= 300)) {
      assert.equal(answer.expect(412).header("Stream-Record-Next"), String(n + 1))
    }
  }
  assert.deepEqual(
    (await allRecords(stream)).values.map((value) => value.n),
    range(0, 5),
  )
})

clause(
  "6.4",
  "it composes with Stream-Seq: both must hold, and a refused append does not advance Stream-Seq",
  async () => {
    const stream = await bucket.records()
    await stream.append("a", { "Stream-Record-Match": "0", "Stream-Seq": "b" })
    ;(await stream.post('"x"', { "Stream-Record-Match": "1", "Stream-Seq": "a" })).expect(409)
    ;(await stream.post('"x"', { "Stream-Record-Match": "0", "Stream-Seq": "c" })).expect(412)
    await stream.append("b", { "Stream-Record-Match": "1", "Stream-Seq": "c" })
    assert.deepEqual((await allRecords(stream)).values, ["a", "b"])
  },
)

clause("6.4", "it composes with producers: a refused append does not use up its sequence", async () => {
  const stream = await bucket.records(["a"])
  ;(await stream.post('"b"', { ...producer(0), "Stream-Record-Match": "0" })).expect(412)
  assert.deepEqual(rangeOf(await stream.append("b", { ...producer(0), "Stream-Record-Match": "1" })), [1, 2])
  assert.deepEqual(rangeOf(await stream.append("c", { ...producer(1), "Stream-Record-Match": "2" })), [2, 3])
  ;(await stream.post('"d"', { ...producer(5), "Stream-Record-Match": "3" })).expect(409)
})

clause("6.4", "a mismatch does not close a stream that the append would have closed", async () => {
  const stream = await bucket.records(["a"])
  ;(await stream.post('"b"', { "Stream-Record-Match": "0", "Stream-Closed": "true" })).expect(412)
  assert.equal((await stream.head()).header("Stream-Closed"), undefined)
  await stream.append("b", { "Stream-Record-Match": "1", "Stream-Closed": "true" })
  assert.equal((await stream.head()).header("Stream-Closed"), "true")
})

for (const value of ["-1", "x", "1.0", "+1", "1 2", "0x1", "99999999999999999999"]) {
  clause("6.4", `the supplied value is an unsigned integer: ${value} is refused`, async () => {
    const stream = await bucket.records(["a"])
    const answer = await stream.post('"b"', { "Stream-Record-Match": value })
    assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
    assert.deepEqual(await coordinates(stream), [0, 1])
  })
}

decision(7, "6.4", "a duplicate is 204 with its original range whatever Stream-Record-Match says", async () => {
  const stream = await bucket.records()
  const first = () => stream.append(["a", "b"], { ...producer(0), "Stream-Record-Match": "0" })
  assert.deepEqual(rangeOf(await first()), [0, 2])
  const again = await first()
  again.answer.expect(204)
  assert.deepEqual(rangeOf(again), [0, 2])
})

decision(7, "6.4", "on a byte stream Stream-Record-Match is 400", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.post("a", { "Stream-Record-Match": "0" })).expect(400)
  assert.equal((await readBytes(stream)).length, 0)
})

decision(7, "6.4", "the order: Stream-Seq 409 before the match 412, the match before invalid JSON 400", async () => {
  const stream = await bucket.records()
  await stream.append("a", { "Stream-Seq": "b" })
  ;(await stream.post("{", { "Stream-Seq": "a", "Stream-Record-Match": "9" })).expect(409)
  ;(await stream.post("{", { "Stream-Seq": "c", "Stream-Record-Match": "9" })).expect(412)
  ;(await stream.post("{", { "Stream-Seq": "c", "Stream-Record-Match": "1" })).expect(400)
  await stream.close()
  ;(await stream.post('"b"', { "Stream-Record-Match": "9" })).expect(409)
})

// --- 6.5

clause("6.5", "HEAD MUST include Stream-Record-First and Stream-Record-Next", async () => {
  const stream = await bucket.records()
  assert.deepEqual(await coordinates(stream), [0, 0])
  await stream.append(["a", "b", "c"])
  assert.deepEqual(await coordinates(stream), [0, 3])
  await stream.close()
  assert.deepEqual(await coordinates(stream), [0, 3])
})

clause("6.5", "HEAD's F follows retention, N does not", async () => {
  const stream = await bucket.records(range(0, 6))
  await stream.trimBefore(4)
  assert.deepEqual(await coordinates(stream), [4, 6])
})

clause("6.5", "a stream without records has no record coordinates", async () => {
  for (const type of [TEXT, BYTES]) {
    const stream = bucket.stream(type)
    const answers = [
      await stream.put({ body: "[1]" }),
      await stream.post("[2]"),
      await stream.head(),
      await stream.get(),
    ]
    for (const answer of answers) {
      for (const name of ["Stream-Record-First", "Stream-Record-Start", "Stream-Record-Next"]) {
        assert.equal(answer.ok().header(name), undefined, `${answer}`)
      }
    }
  }
})

decision(11, "6.1", "a record keeps its tokens exactly as sent; only insignificant white space goes", async () => {
  const stream = await bucket.make(JSON_TYPE)
  const sent = ['{"b":1.0, "a":1e3 ,"b":2}', "-0.0", "1E400", '"\\u00e9\\/é"', "12345678901234567890123", "[ 1 , { } ]"]
  const kept = ['{"b":1.0,"a":1e3,"b":2}', "-0.0", "1E400", '"\\u00e9\\/é"', "12345678901234567890123", "[1,{}]"]
  ;(await stream.post(`[${sent.join(" ,\n")}]`)).ok()
  const lines = (await stream.get("?record=0")).expect(200).text
  assert.equal(lines, kept.map((line) => `${line}\n`).join(""))
})

decision(11, "6.1", "offsets count each record plus one separator byte", async () => {
  const stream = await bucket.records()
  const { offset } = await stream.append(["a", 1])
  assert.equal(Number(/\d+$/.exec(offset)[0]), '"a",1,'.length)
})

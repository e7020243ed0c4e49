// Sections 6.6 to 6.8: record-aware reads and the envelope view.

import assert from "node:assert/strict"

import {
  Bucket,
  JSON_TYPE,
  TEXT,
  allRecords,
  clause,
  decision,
  from,
  integer,
  jsonValues,
  ndjson,
  range,
  readValues,
  segment,
} from "./harness.mjs"

const bucket = await Bucket.create()
const NDJSON = "application/x-ndjson"
const ENVELOPES = "application/vnd.durable-stream-records+ndjson"

/** Ten records, of which nobody appends more. */
const ten = await bucket.records(range(0, 10).map((n) => ({ n })))
const tenOf = (start, end = 10) => range(start, end).map((n) => ({ n }))

// --- 6.6

clause("6.6", "record=<ordinal> starts at that record", async () => {
  for (const record of range(0, 10)) {
    const page = await ten.readRecords(`?record=${record}`)
    assert.deepEqual([page.first, page.start, page.next], [0, record, 10])
    assert.deepEqual(page.values, tenOf(record))
  }
})

clause("6.6", "record=now starts at the current tail", async () => {
  const page = await ten.readRecords("?record=now")
  assert.deepEqual([page.first, page.start, page.next, page.values], [0, 10, 10, []])
  assert.equal(page.offset, await ten.tail())
})

clause("6.6", "tail_records=<count> starts at max(F, N - count)", async () => {
  for (const [count, start] of [
    [1, 9],
    [3, 7],
    [10, 0],
    [11, 0],
    [1_000_000, 0],
  ]) {
    const page = await ten.readRecords(`?tail_records=${count}`)
    assert.deepEqual([page.start, page.next], [start, 10], `tail_records=${count}`)
    assert.deepEqual(page.values, tenOf(start))
  }
})

clause("6.6", "tail_records=0 is equivalent to record=now", async () => {
  const [zero, now] = [await ten.readRecords("?tail_records=0"), await ten.readRecords("?record=now")]
  assert.deepEqual([zero.start, zero.next, zero.offset, zero.values], [now.start, now.next, now.offset, now.values])
  assert.equal(zero.start, 10)
})

clause("6.6", "record = N is a valid up-to-date empty read", async () => {
  const page = await ten.readRecords("?record=10")
  assert.deepEqual([page.start, page.next, page.values], [10, 10, []])
  assert.equal(page.answer.header("Stream-Up-To-Date"), "true")
})

clause("6.6", "record = N = 0 on an empty stream is a valid up-to-date empty read", async () => {
  const stream = await bucket.records()
  for (const query of ["?record=0", "?record=now", "?tail_records=5"]) {
    const page = await stream.readRecords(query)
    assert.deepEqual([page.first, page.start, page.next, page.values], [0, 0, 0, []])
    assert.equal(page.answer.header("Stream-Up-To-Date"), "true")
  }
})

clause("6.6", "record < F MUST return 410 with Stream-Record-First and Stream-Record-Next", async () => {
  const stream = await bucket.records(range(0, 8))
  await stream.trimBefore(5)
  for (const record of [0, 1, 4]) {
    const answer = (await stream.get(`?record=${record}`)).expect(410)
    assert.equal(answer.header("Stream-Record-First"), "5", `${answer}`)
    assert.equal(answer.header("Stream-Record-Next"), "8", `${answer}`)
  }
  assert.deepEqual((await stream.readRecords("?record=5")).values, [5, 6, 7])
})

for (const record of ["11", "12", "4294967296", "9007199254740993", "18446744073709551615"]) {
  clause("6.6", `record > N MUST return 400 with Stream-Record-Next: ${record}`, async () => {
    const answer = (await ten.get(`?record=${record}`)).expect(400)
    assert.equal(answer.header("Stream-Record-Next"), "10", `${answer}`)
  })
}

for (const value of ["-1", "x", "1.5", "", "+1", "0x1", "NOW", "99999999999999999999999"]) {
  clause("6.6", `record is an ordinal or now: ${value || "an empty value"} is refused with 400`, async () => {
    ;(await ten.get(`?record=${segment(value)}`)).expect(400)
  })
}

for (const value of ["-1", "x", "1.5", "", "now"]) {
  clause(
    "6.6",
    `tail_records MUST be a non-negative integer: ${value || "an empty value"} is refused with 400`,
    async () => {
      ;(await ten.get(`?tail_records=${value}`)).expect(400)
    },
  )
}

const STARTS = ["record=1", "record=now", "tail_records=1", "offset=-1", "offset=now"]
for (const [n, one] of STARTS.entries()) {
  for (const other of STARTS.slice(n + 1)) {
    if (one.startsWith("offset") && other.startsWith("offset")) continue
    clause("6.6", `the starts are mutually exclusive: ${one} with ${other} is refused with 400`, async () => {
      ;(await ten.get(`?${one}&${other}`)).expect(400)
      ;(await ten.get(`?${other}&${one}`)).expect(400)
    })
  }
}

clause("6.6", "exactly one start: the same parameter twice is refused with 400", async () => {
  for (const query of ["?record=1&record=2", "?tail_records=1&tail_records=2"]) (await ten.get(query)).expect(400)
})

clause("6.6", "max_records limits the number of complete records", async () => {
  for (const [query, start, end] of [
    ["?record=0&max_records=1", 0, 1],
    ["?record=3&max_records=4", 3, 7],
    ["?record=8&max_records=5", 8, 10],
    ["?tail_records=4&max_records=2", 6, 8],
    ["?record=0&max_records=10", 0, 10],
    ["?record=0&max_records=1000000", 0, 10],
    ["?record=now&max_records=1", 10, 10],
  ]) {
    const page = await ten.readRecords(query)
    assert.deepEqual([page.start, page.next], [start, end], query)
    assert.deepEqual(page.values, tenOf(start, end))
    assert.equal(page.answer.header("Stream-Up-To-Date") === "true", end === 10, `${page.answer}`)
  }
})

for (const value of ["0", "-1", "x", "1.5", ""]) {
  clause("6.6", `max_records is a positive integer: ${value || "an empty value"} is refused with 400`, async () => {
    ;(await ten.get(`?record=0&max_records=${value}`)).expect(400)
  })
}

clause("6.6", "max_records without a record-aware start MUST return 400: alone, with offset, live", async () => {
  for (const query of [
    "?max_records=5",
    "?offset=-1&max_records=5",
    "?offset=now&max_records=5",
    "?offset=-1&live=long-poll&max_records=5",
  ]) {
    ;(await ten.get(query)).expect(400)
  }
})

clause("6.6", "a record-aware read with max_bytes MUST return 400", async () => {
  for (const query of [
    "?record=0&max_bytes=100",
    "?tail_records=5&max_bytes=100",
    "?record=now&max_bytes=1",
    "?record=0&max_records=2&max_bytes=100",
  ]) {
    ;(await ten.get(query)).expect(400)
  }
})

clause("6.6", "404 if the stream does not exist", async () => {
  for (const query of ["?record=0", "?tail_records=1", "?record=now"])
    (await bucket.stream(JSON_TYPE).get(query)).expect(404)
})

decision(26, "6.6", "record-aware parameters on a stream without records: 400", async () => {
  const stream = await bucket.make(TEXT, { body: "text" })
  for (const query of [
    "?record=0",
    "?record=now",
    "?tail_records=1",
    "?offset=-1&max_records=1",
    "?offset=-1&record_view=envelope",
  ]) {
    ;(await stream.get(query)).expect(400)
  }
})

// --- 6.7

clause("6.7", "Content-Type MUST be application/x-ndjson by default: with data, and empty", async () => {
  for (const query of ["?record=0", "?tail_records=2", "?record=now", "?record=3&max_records=1"]) {
    assert.equal((await ten.get(query)).expect(200).mediaType, NDJSON)
  }
})

clause("6.7", "Accept does not make it anything else than complete records in lines", async () => {
  for (const accept of ["application/json", "*/*", "application/x-ndjson"]) {
    const answer = (await ten.get("?record=7", { Accept: accept })).expect(200)
    assert.equal(answer.mediaType, NDJSON)
    assert.deepEqual(ndjson(answer), tenOf(7))
  }
})

clause(
  "6.7",
  "MUST include Stream-Record-First, Stream-Record-Start, Stream-Record-Next and Stream-Next-Offset",
  async () => {
    const answer = (await ten.get("?record=2&max_records=3")).expect(200)
    assert.equal(answer.header("Stream-Record-First"), "0")
    assert.equal(answer.header("Stream-Record-Start"), "2")
    assert.equal(answer.header("Stream-Record-Next"), "5")
    answer.require("Stream-Next-Offset")
  },
)

clause("6.7", "Stream-Next-Offset MUST identify the same boundary as Stream-Record-Next", async () => {
  for (const end of range(1, 11)) {
    const page = await ten.readRecords(`?record=0&max_records=${end}`)
    assert.equal(page.next, end)
    assert.deepEqual(await readValues(ten, page.offset), tenOf(end), "read on by the offset")
    assert.deepEqual((await ten.readRecords(`?record=${page.next}`)).values, tenOf(end), "read on by the ordinal")
  }
})

clause(
  "6.7",
  "an empty answer MUST set Start and Next to the resolved ordinal, and Stream-Next-Offset to its offset",
  async () => {
    const page = await ten.readRecords("?record=10")
    assert.deepEqual([page.start, page.next], [10, 10])
    assert.equal(page.offset, await ten.tail())
  },
)

clause("6.7", "a continuation by Stream-Record-Next misses and repeats nothing, for any max_records", async () => {
  const stream = await bucket.records()
  const values = range(0, 257).map((n) => ({ n, text: "x".repeat((n * 13) % 90) }))
  for (const start of range(0, 26)) await stream.append(values.slice(start * 10, start * 10 + 10))
  for (const max of [1, 7, 64, 65, 256, 257, 258]) {
    const { pages, values: found } = await allRecords(stream, 0, `&max_records=${max}`)
    assert.deepEqual(found, values, `max_records=${max}`)
    for (const page of pages) assert.ok(page.values.length <= max, `${page.values.length} of at most ${max}`)
  }
})

clause(
  "6.7",
  "every record of a long stream is found by its ordinal: 3,000 records, singly and in ranges",
  async () => {
    const stream = await bucket.records()
    const value = (n) => ({ n, text: "y".repeat((n * 7919) % 300) })
    for (const start of range(0, 6)) await stream.append(range(start * 500, start * 500 + 500).map(value))
    for (const record of [0, 1, 63, 64, 65, 127, 128, 499, 500, 501, 1023, 1024, 1777, 2047, 2048, 2998, 2999]) {
      const page = await stream.readRecords(`?record=${record}&max_records=3`)
      assert.deepEqual(page.values, range(record, Math.min(record + 3, 3000)).map(value), `record ${record}`)
    }
  },
)

clause("6.7", "pages of a large stream hold complete records only, and join without a gap", async () => {
  const stream = await bucket.records()
  const value = (n) => ({ n, text: "z".repeat(20_000 + n * 100) })
  for (const start of range(0, 15)) await stream.append(range(start * 10, start * 10 + 10).map(value))
  const { pages, values } = await allRecords(stream)
  assert.equal(values.length, 150)
  assert.deepEqual(
    values.map((found) => [found.n, found.text.length]),
    range(0, 150).map((n) => [n, 20_000 + n * 100]),
  )
  for (const [n, page] of pages.slice(1).entries()) assert.equal(page.start, pages[n].next)
  for (const page of pages.slice(0, -1)) assert.notEqual(page.answer.header("Stream-Up-To-Date"), "true")
})

clause("6.7", "a record that is larger than any page is still returned whole", async () => {
  const stream = await bucket.records(["before"])
  const large = "L".repeat(3 * 1024 * 1024)
  await stream.append([large, "after"])
  const page = await stream.readRecords("?record=1&max_records=1")
  assert.equal(page.values.length, 1)
  assert.ok(page.values[0] === large)
  assert.deepEqual(
    (await allRecords(stream)).values.map((value) => value.length),
    [6, large.length, 5],
  )
})

clause("6.7", "a catch-up read of a closed stream says so at its end, and not before", async () => {
  const stream = await bucket.records([1, 2, 3])
  await stream.close()
  assert.equal((await stream.get("?record=0")).expect(200).header("Stream-Closed"), "true")
  assert.equal((await stream.get("?record=3")).expect(200).header("Stream-Closed"), "true")
  assert.equal((await stream.get("?record=0&max_records=2")).expect(200).header("Stream-Closed"), undefined)
})

clause("6.7", "an ordinary read by offset is unchanged by record-aware ones", async () => {
  const stream = await bucket.records([1, 2, 3])
  const before = (await stream.get()).expect(200)
  await stream.readRecords("?record=1")
  await stream.readRecords("?record=0&record_view=envelope")
  const now = (await stream.get()).expect(200)
  assert.equal(now.text, before.text)
  assert.equal(now.header("ETag"), before.header("ETag"))
  assert.equal(now.header("Content-Type"), before.header("Content-Type"))
  assert.deepEqual(jsonValues(now.text), [1, 2, 3])
})

clause("6.7", "If-None-Match: an answer is 304 only for the same records in the same form", async (t) => {
  const stream = await bucket.records([1, 2, 3])
  const read = (await stream.get("?record=1")).expect(200)
  const etag = read.header("ETag")
  if (etag === undefined) return t.skip("record-aware reads of this server have no ETag")
  ;(await stream.get("?record=1", { "If-None-Match": etag })).expect(304)
  for (const query of ["?record=0", "?record=1&max_records=1", "?record=1&record_view=envelope", "?offset=-1"]) {
    ;(await stream.get(query, { "If-None-Match": etag })).expect(200)
  }
  await stream.append(4)
  ;(await stream.get("?record=1", { "If-None-Match": etag })).expect(200)
})

decision(
  9,
  "6.7",
  "an offset of a JSON stream that is no record boundary is 400, a plain decimal that is one is accepted",
  async () => {
    const stream = await bucket.make(JSON_TYPE, { body: '["ab","cd"]' })
    // "ab", and its separator.
    assert.deepEqual(await readValues(stream, "5"), ["cd"])
    for (const offset of ["1", "4", "6", "11", "05"]) (await stream.get(from(offset))).expect(400)
  },
)

decision(12, "6.7", "an ordinary read with Accept: application/x-ndjson gets the same lines", async () => {
  const plain = (await ten.get("", { Accept: NDJSON })).expect(200)
  assert.equal(plain.mediaType, NDJSON)
  assert.equal(plain.text, (await ten.get("?record=0")).expect(200).text)
  assert.match(plain.header("Vary") ?? "", /accept/i)
})

decision(13, "6.6", "max_bytes cuts an ordinary JSON read at a record, at least one", async () => {
  for (const [max, count] of [
    [1, 1],
    ['{"n":0},'.length, 1],
    ['{"n":0},{"n":1},'.length, 2],
  ]) {
    const answer = (await ten.get(`?offset=-1&max_bytes=${max}`)).expect(200)
    assert.deepEqual(jsonValues(answer.text), tenOf(0, count), `max_bytes=${max}`)
  }
  for (const max of ["0", "-1", "x"]) (await ten.get(`?offset=-1&max_bytes=${max}`)).expect(400)
})

decision(
  32,
  "6.7",
  "record=now and tail_records are no-store; a page at the tail no-cache; one before it cacheable",
  async () => {
    for (const query of ["?record=now", "?tail_records=3"]) {
      assert.equal((await ten.get(query)).expect(200).header("Cache-Control"), "no-store", query)
    }
    assert.equal((await ten.get("?record=0")).header("Cache-Control"), "no-cache")
    const before = (await ten.get("?record=0&max_records=2")).header("Cache-Control")
    assert.equal(before, "public, max-age=60, stale-while-revalidate=300")
  },
)

// --- 6.8

clause("6.8", "record_view=envelope MUST use application/vnd.durable-stream-records+ndjson", async () => {
  for (const query of ["?record=0", "?tail_records=2", "?record=now"]) {
    assert.equal((await ten.get(`${query}&record_view=envelope`)).expect(200).mediaType, ENVELOPES)
  }
})

clause("6.8", "each line MUST be an object of record and value", async () => {
  const page = await ten.readRecords("?record=4&max_records=3&record_view=envelope")
  assert.deepEqual([page.first, page.start, page.next], [0, 4, 7])
  assert.deepEqual(
    page.values,
    [4, 5, 6].map((n) => ({ record: n, value: { n } })),
  )
})

clause("6.8", "value is the original value, of any kind", async () => {
  const values = [null, 1, -1.5, "text\n", true, [], [1, [2]], {}, { record: 7, value: "inner" }]
  const stream = await bucket.records()
  await stream.append(values)
  const page = await stream.readRecords("?record=0&record_view=envelope")
  assert.deepEqual(
    page.values,
    values.map((value, record) => ({ record, value })),
  )
})

clause("6.8", "MUST be combined with a record-aware start: otherwise 400", async () => {
  for (const query of [
    "?record_view=envelope",
    "?offset=-1&record_view=envelope",
    "?offset=now&live=sse&record_view=envelope",
  ]) {
    ;(await ten.get(query)).expect(400)
  }
})

clause("6.8", "after retention envelopes have the surviving ordinals", async () => {
  const stream = await bucket.records(range(0, 6))
  await stream.trimBefore(4)
  const page = await stream.readRecords("?tail_records=9&record_view=envelope")
  assert.deepEqual(page.values, [
    { record: 4, value: 4 },
    { record: 5, value: 5 },
  ])
})

clause("6.8", "pages of envelopes join without a gap, and end where pages of records end", async () => {
  const stream = await bucket.records()
  const value = (n) => ({ n, text: "e".repeat(5000) })
  for (const start of range(0, 8)) await stream.append(range(start * 50, start * 50 + 50).map(value))
  const { values } = await allRecords(stream, 0, "&record_view=envelope")
  assert.deepEqual(
    values,
    range(0, 400).map((n) => ({ record: n, value: value(n) })),
  )
})

clause("6.8", "the envelope MUST NOT change offsets or ordinals: both views have the same boundaries", async () => {
  for (const query of ["?record=0", "?record=3&max_records=2", "?tail_records=4", "?record=10"]) {
    const [plain, enveloped] = [await ten.readRecords(query), await ten.readRecords(`${query}&record_view=envelope`)]
    assert.deepEqual(
      [enveloped.first, enveloped.start, enveloped.next, enveloped.offset],
      [plain.first, plain.start, plain.next, plain.offset],
    )
    assert.deepEqual(
      enveloped.values.map(({ value }) => value),
      plain.values,
    )
  }
})

clause(
  "6.8",
  "the envelope MUST NOT change the ETag of the canonical representation, and has none of its own that is the same",
  async () => {
    const stream = await bucket.records([1, 2])
    const tagOf = async (query) => (await stream.get(query)).expect(200).header("ETag")
    const canonical = await tagOf("?offset=-1")
    const enveloped = await tagOf("?record=0&record_view=envelope")
    assert.equal(await tagOf("?offset=-1"), canonical)
    assert.ok(enveloped === undefined || enveloped !== canonical, `${enveloped}`)
  },
)

clause("6.8", "the envelope MUST NOT change snapshots or bootstrap data", async () => {
  const stream = await bucket.records([1, 2, 3])
  ;(await stream.publishAtRecord(1, "folded")).expect(204)
  await stream.readRecords("?record=0&record_view=envelope")
  const { snapshot, updates } = await stream.bootstrap()
  assert.deepEqual([snapshot.text, ...updates.map((part) => JSON.parse(part.text))], ["folded", 2, 3])
})

decision(14, "6.8", "envelope members come in the order record, value, without white space", async () => {
  const stream = await bucket.make(JSON_TYPE, { body: '[ {"b": 1, "a": 2}, 1.0 ]' })
  const answer = (await stream.get("?record=0&record_view=envelope")).expect(200)
  assert.equal(answer.text, '{"record":0,"value":{"b":1,"a":2}}\n{"record":1,"value":1.0}\n')
})

decision(26, "6.8", "record_view other than envelope: 400", async () => {
  for (const view of ["plain", "", "Envelope"]) (await ten.get(`?record=0&record_view=${view}`)).expect(400)
})

// --- a fork

clause("6.1", "a fork's records are its source's up to the fork, then its own, with ordinals that go on", async (t) => {
  const source = await bucket.records(range(0, 6))
  const { offset } = await source.readRecords("?record=0&max_records=4")
  const fork = await source.fork(t, offset)
  if (fork === undefined) return
  const head = (await fork.head()).expect(200)
  assert.deepEqual([0, 4], [integer(head.require("Stream-Record-First")), integer(head.require("Stream-Record-Next"))])
  assert.equal((await fork.append("own")).start, 4)
  assert.deepEqual((await allRecords(fork)).values, [0, 1, 2, 3, "own"])
  assert.deepEqual((await fork.readRecords("?record=3&max_records=2")).values, [3, "own"])
  assert.deepEqual(await readValues(fork), [0, 1, 2, 3, "own"])
  assert.deepEqual((await allRecords(source)).values, range(0, 6))
  assert.deepEqual(jsonValues((await fork.get(from(offset))).text), ["own"])
})

// Section 2.2, retention, and what sections 3.4 and 6.10 say of it.

import assert from "node:assert/strict"

import {
  Bucket,
  JSON_TYPE,
  TEXT,
  allRecords,
  beyond,
  between,
  clause,
  decision,
  from,
  range,
  readBytes,
  readValues,
  segment,
} from "./harness.mjs"
import { openEvents } from "./http.mjs"

const bucket = await Bucket.create()
const PARTS = ["first ", "second ", "third ", "fourth"]

/** A text stream of four messages with a snapshot behind the message `snapshotAt`, if any. */
async function messages(snapshotAt) {
  const stream = await bucket.make(TEXT)
  const start = await stream.tail()
  const offsets = []
  for (const part of PARTS) offsets.push((await stream.append(part)).offset)
  if (snapshotAt !== undefined) (await stream.publish(offsets[snapshotAt], "folded")).expect(204)
  return { stream, start, offsets }
}

/** Fails unless the request was refused, by 4xx, and everything can still be read. */
async function refused(answer, stream) {
  const { status } = await answer
  assert.ok(status >= 400 && status < 500, `expected a refusal, got ${await answer}`)
  assert.equal(String(await readBytes(stream)), PARTS.join(""), "a refused retention changes nothing")
}

clause("2.2", "retention at the latest snapshot: accepted; offsets before it MUST be 410", async () => {
  const { stream, start, offsets } = await messages(2)
  ;(await stream.retain(offsets[2])).ok()
  for (const offset of [start, offsets[0], offsets[1]]) (await stream.get(from(offset))).expect(410)
})

clause("2.2", "retention before the latest snapshot: accepted", async () => {
  const { stream, offsets } = await messages(2)
  ;(await stream.retain(offsets[0])).ok()
  assert.equal(String(await readBytes(stream, offsets[0])), "second third fourth")
})

clause("2.2", "what is retained reads as before: at the boundary, and behind it", async () => {
  const { stream, offsets } = await messages(1)
  const tail = await stream.tail()
  ;(await stream.retain(offsets[1])).ok()
  assert.equal(String(await readBytes(stream, offsets[1])), "third fourth")
  assert.equal(String(await readBytes(stream, offsets[2])), "fourth")
  assert.equal((await stream.get(from(tail))).expect(200).text, "")
  assert.equal(await stream.tail(), tail)
})

clause("2.2", "offsets before the boundary MUST be 410 for a long-poll", async () => {
  const { stream, start, offsets } = await messages(1)
  ;(await stream.retain(offsets[1])).ok()
  ;(await stream.get(from(start, "&live=long-poll"))).expect(410)
  ;(await stream.get(from(offsets[0], "&live=long-poll"))).expect(410)
  assert.equal((await stream.get(from(offsets[1], "&live=long-poll"))).expect(200).text, "third fourth")
})

clause("2.2", "offsets before the boundary MUST be 410 for SSE", async (t) => {
  const { stream, offsets } = await messages(1)
  ;(await stream.retain(offsets[1])).ok()
  const refused = await openEvents(t, `${stream.path}${from(offsets[0], "&live=sse")}`)
  assert.equal(refused.status, 410, `${refused}`)
  const events = await openEvents(t, `${stream.path}${from(offsets[1], "&live=sse")}`)
  assert.equal((await events.nextPair()).data, "third fourth")
})

clause("2.2", "an offset inside a trimmed message is 410", async (t) => {
  const { stream, start, offsets } = await messages(1)
  const inside = between(start, offsets[0])
  if (inside === undefined) return t.skip("the offsets of this server do not count bytes")
  ;(await stream.retain(offsets[1])).ok()
  ;(await stream.get(from(inside))).expect(410)
})

clause("2.2", "a boundary that is not aligned to committed data MUST be rejected", async (t) => {
  const { stream, offsets } = await messages(2)
  const inside = between(offsets[0], offsets[1])
  if (inside === undefined) return t.skip("the offsets of this server do not count bytes")
  await refused(stream.retain(inside), stream)
})

clause("2.2", "a boundary past the tail MUST be rejected", async (t) => {
  const { stream, offsets } = await messages(3)
  const past = beyond(offsets[3])
  if (past === undefined) return t.skip("the offsets of this server do not end in digits")
  await refused(stream.retain(past), stream)
})

clause("2.2", "a boundary that is no offset MUST be rejected with 400", async () => {
  const { stream } = await messages(2)
  for (const offset of ["not-an-offset", "$$$"]) {
    ;(await stream.retain(offset)).expect(400)
    await refused(stream.retain(offset), stream)
  }
})

clause("2.2", "a boundary newer than the latest snapshot MUST be rejected", async () => {
  const { stream, offsets } = await messages(1)
  await refused(stream.retain(offsets[2]), stream)
  await refused(stream.retain(offsets[3]), stream)
  ;(await stream.retain(offsets[1])).ok()
})

clause("2.2", "without a snapshot every boundary is newer than it, and MUST be rejected", async () => {
  const { stream, offsets } = await messages()
  for (const offset of offsets) await refused(stream.retain(offset), stream)
})

clause("2.2", "a boundary that moves backward MUST be rejected, and the old one stays", async () => {
  const { stream, start, offsets } = await messages(2)
  ;(await stream.retain(offsets[1])).ok()
  for (const offset of [start, offsets[0]]) {
    const answer = await stream.retain(offset)
    assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
  }
  ;(await stream.get(from(offsets[0]))).expect(410)
  assert.equal(String(await readBytes(stream, offsets[1])), "third fourth")
})

clause("2.2", "the boundary can advance again and again", async () => {
  const { stream, offsets } = await messages(3)
  for (const [n, offset] of offsets.entries()) {
    ;(await stream.retain(offset)).ok()
    assert.equal(String(await readBytes(stream, offset)), PARTS.slice(n + 1).join(""))
    if (n > 0) (await stream.get(from(offsets[n - 1]))).expect(410)
  }
})

clause("2.2", "all of a stream can be trimmed; it goes on from its tail", async () => {
  const { stream, offsets } = await messages(3)
  ;(await stream.retain(offsets[3])).ok()
  assert.equal((await stream.get(from(offsets[3]))).expect(200).text, "")
  await stream.append("fifth")
  assert.equal(String(await readBytes(stream, offsets[3])), "fifth")
  ;(await stream.get(from(offsets[2]))).expect(410)
})

clause("2.2", "404 if the stream does not exist", async () => {
  const { offsets } = await messages(3)
  ;(await bucket.stream(TEXT).retain(offsets[0])).expect(404)
})

clause("2.2", "a closed stream can be trimmed, and still says that it is closed", async () => {
  const { stream, offsets } = await messages(1)
  await stream.close()
  ;(await stream.retain(offsets[1])).ok()
  ;(await stream.get(from(offsets[0]))).expect(410)
  const rest = (await stream.get(from(offsets[1]))).expect(200)
  assert.equal(rest.text, "third fourth")
  assert.equal(rest.header("Stream-Closed"), "true")
})

clause("2.2", "trimming one stream does not touch another", async () => {
  const [one, two] = [await messages(2), await messages(2)]
  ;(await one.stream.retain(one.offsets[2])).ok()
  assert.equal(String(await readBytes(two.stream)), PARTS.join(""))
})

clause("2.2", "retention?record=r trims to the offset of record r", async () => {
  const stream = await bucket.records(range(0, 6))
  ;(await stream.publishAtRecord(4, "folded")).expect(204)
  ;(await stream.retainFromRecord(3)).ok()
  const head = (await stream.head()).expect(200)
  assert.equal(head.header("Stream-Record-First"), "3")
  assert.equal(head.header("Stream-Record-Next"), "6")
  const { offset } = await stream.readRecords("?record=3&max_records=1")
  assert.deepEqual(await readValues(stream, offset), [4, 5])
})

clause("2.2", "retention?record newer than the snapshot, backward, or beyond the tail MUST be rejected", async () => {
  const stream = await bucket.records(range(0, 6))
  ;(await stream.publishAtRecord(4, "folded")).expect(204)
  ;(await stream.retainFromRecord(2)).ok()
  for (const record of [5, 6, 7, 1, 0]) {
    const answer = await stream.retainFromRecord(record)
    assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
    assert.equal((await stream.head()).header("Stream-Record-First"), "2", `after record ${record}`)
  }
})

clause("2.2", "retention?record that is no ordinal: 400", async () => {
  const stream = await bucket.records(range(0, 3))
  ;(await stream.publishAtRecord(2, "folded")).expect(204)
  for (const record of ["-1", "x", "1.5", ""]) (await stream.retainFromRecord(record)).expect(400)
})

clause("6.10", "retention MUST advance F only at a record boundary", async (t) => {
  const stream = await bucket.records(["a long enough record", "b", "c"])
  ;(await stream.publishAtRecord(2, "folded")).expect(204)
  const [one, two] = await Promise.all([
    stream.readRecords("?record=0&max_records=1"),
    stream.readRecords("?record=0&max_records=2"),
  ])
  const inside = between(one.offset, two.offset)
  if (inside === undefined) return t.skip("the offsets of this server do not count bytes")
  const answer = await stream.retain(inside)
  assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
  assert.equal((await stream.head()).header("Stream-Record-First"), "0")
})

clause("6.10", "the offset that retention advances to MUST map to one record boundary", async () => {
  const stream = await bucket.records(range(0, 5))
  ;(await stream.publishAtRecord(3, "folded")).expect(204)
  const offset =
    (await stream.head()).header("Stream-Snapshot-Offset") ??
    (await stream.bootstrap()).answer.require("Stream-Snapshot-Offset")
  ;(await stream.retain(offset)).ok()
  assert.equal((await stream.head()).header("Stream-Record-First"), "3")
  assert.deepEqual(await readValues(stream, offset), [3, 4])
})

clause("6.10", "a trimmed ordinal MUST be 410; surviving records keep their ordinals", async () => {
  const stream = await bucket.records(range(0, 20).map((n) => ({ n })))
  await stream.trimBefore(7)
  for (const record of [0, 3, 6]) {
    const answer = (await stream.get(`?record=${record}`)).expect(410)
    assert.equal(answer.header("Stream-Record-First"), "7", `${answer}`)
    assert.equal(answer.header("Stream-Record-Next"), "20", `${answer}`)
  }
  for (const record of range(7, 20)) {
    const page = await stream.readRecords(`?record=${record}&max_records=1`)
    assert.deepEqual([page.first, page.start, page.next, page.values], [7, record, record + 1, [{ n: record }]])
  }
  const { start, next } = await stream.append([{ n: 20 }, { n: 21 }])
  assert.deepEqual([start, next], [20, 22])
  await stream.trimBefore(15)
  assert.deepEqual(
    (await allRecords(stream, 15)).values,
    range(15, 22).map((n) => ({ n })),
  )
})

clause("6.6", "after retention tail_records starts at max(F, N - count)", async () => {
  const stream = await bucket.records(range(0, 10))
  await stream.trimBefore(6)
  for (const [count, start] of [
    [1, 9],
    [4, 6],
    [5, 6],
    [1000, 6],
    [0, 10],
  ]) {
    const page = await stream.readRecords(`?tail_records=${count}`)
    assert.deepEqual([page.start, page.values], [start, range(start, 10)], `tail_records=${count}`)
  }
})

clause("6.6", "a record before F is 410 for a long-poll, for SSE and for envelopes", async (t) => {
  const stream = await bucket.records(range(0, 5))
  await stream.trimBefore(3)
  ;(await stream.get("?record=2&live=long-poll")).expect(410)
  ;(await stream.get("?record=2&record_view=envelope")).expect(410)
  const events = await openEvents(t, `${stream.path}?record=2&live=sse`)
  assert.equal(events.status, 410, `${events}`)
})

clause("6.9", "SSE control events show the F that retention set", async (t) => {
  const stream = await bucket.records(range(0, 5))
  await stream.trimBefore(3)
  const events = await openEvents(t, `${stream.path}?record=3&live=sse`)
  const { control } = await events.nextPair()
  assert.equal(control.streamFirstRecord, 3)
  assert.equal(control.streamNextRecord, 5)
})

clause("6.13", "N - F equals the number of retained messages", async () => {
  const stream = await bucket.records(range(0, 10))
  for (const first of [2, 5, 9, 10]) {
    await stream.trimBefore(first)
    const head = (await stream.head()).expect(200)
    assert.equal(Number(head.header("Stream-Record-First")), first)
    assert.equal((await allRecords(stream, first)).values.length, 10 - first)
  }
})

clause("6.13", "a duplicate of a trimmed append returns its original ordinals", async () => {
  const stream = await bucket.records()
  const producer = (seq) => ({ "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": String(seq) })
  const first = await stream.append(["a", "b"], producer(0))
  await stream.append(["c"], producer(1))
  await stream.trimBefore(3)
  const again = await stream.append(["c"], producer(1))
  assert.deepEqual([again.start, again.next], [2, 3])
  assert.deepEqual([first.start, first.next], [0, 2])
  assert.equal((await stream.head()).header("Stream-Record-Next"), "3")
})

clause(
  "3.4",
  "when reads are 410, /bootstrap MUST be available with a snapshot that covers the earliest retained offset",
  async () => {
    const { stream, offsets } = await messages(2)
    ;(await stream.retain(offsets[1])).ok()
    ;(await stream.get(from(offsets[0]))).expect(410)
    const { answer, snapshot, updates, next } = await stream.bootstrap()
    assert.equal(answer.require("Stream-Snapshot-Offset"), offsets[2])
    assert.equal(snapshot.text, "folded")
    assert.deepEqual(
      updates.map((part) => part.text),
      ["fourth"],
    )
    assert.equal(next, offsets[3])
    const removed = await stream.request("DELETE", `/snapshot/${segment(offsets[2])}`)
    removed.expect(409)
  },
)

clause("3.4", "a client that met 410 bootstraps and continues without a gap", async () => {
  const stream = await bucket.records(range(0, 8))
  await stream.trimBefore(5, JSON.stringify(range(0, 5)))
  ;(await stream.get("?record=4")).expect(410)
  const { snapshot, updates, next } = await stream.bootstrap()
  await stream.append([8, 9])
  const state = [
    ...JSON.parse(snapshot.text),
    ...updates.map((part) => JSON.parse(part.text)),
    ...(await readValues(stream, next)),
  ]
  assert.deepEqual(state, range(0, 10))
})

// --- what only the decisions say

decision(
  10,
  "2.2",
  "-1, all zeros and no offset are below the boundary: 410 with Stream-Next-Offset and the coordinates",
  async () => {
    const stream = await bucket.records(range(0, 5))
    const { offset } = await stream.readRecords("?record=0&max_records=3")
    ;(await stream.publish(offset, "folded")).expect(204)
    ;(await stream.retain(offset)).expect(204)
    for (const query of ["", "?offset=-1", "?offset=0000000000000000_0000000000000000", "?offset=-1&live=long-poll"]) {
      const answer = (await stream.get(query)).expect(410)
      assert.equal(answer.header("Stream-Next-Offset"), offset, `${answer}`)
      assert.equal(answer.header("Stream-Record-First"), "3", `${answer}`)
      assert.equal(answer.header("Stream-Record-Next"), "5", `${answer}`)
    }
  },
)

decision(10, "2.2", "410 on a byte stream has Stream-Next-Offset and no coordinates", async () => {
  const { stream, offsets } = await messages(1)
  ;(await stream.retain(offsets[1])).expect(204)
  const answer = (await stream.get(from(offsets[0]))).expect(410)
  assert.equal(answer.header("Stream-Next-Offset"), offsets[1])
  assert.equal(answer.header("Stream-Record-First"), undefined)
})

decision(
  20,
  "2.2",
  "malformed, -1 or now: 400; backward, no snapshot, beyond it: 409; no boundary: 400; the present one: 204",
  async () => {
    const { stream, start, offsets } = await messages(2)
    for (const offset of ["nonsense", "-1", "now"]) (await stream.retain(offset)).expect(400)
    ;(await stream.retain(start)).expect(204)
    ;(await stream.retain(between(start, offsets[0]))).expect(400)
    ;(await stream.retain(offsets[3])).expect(409)
    ;(await stream.retain(beyond(offsets[3]))).expect(409)
    ;(await stream.retain(offsets[1])).expect(204)
    ;(await stream.retain(offsets[1])).expect(204)
    ;(await stream.retain(offsets[0])).expect(409)
    // What moves backward is 409 also where it is no boundary.
    ;(await stream.retain(between(start, offsets[0]))).expect(409)
    const bare = await messages()
    ;(await bare.stream.retain(bare.offsets[0])).expect(409)
    ;(await bare.stream.retain(bare.start)).expect(204)
    ;(await bare.stream.retain(between(bare.start, bare.offsets[0]))).expect(409)
  },
)

decision(20, "2.2", "retention?record follows the same order", async () => {
  const stream = await bucket.records(range(0, 5))
  ;(await stream.retainFromRecord(1)).expect(409)
  ;(await stream.publishAtRecord(3, "folded")).expect(204)
  ;(await stream.retainFromRecord(4)).expect(409)
  ;(await stream.retainFromRecord(9)).expect(409)
  ;(await stream.retainFromRecord(2)).expect(204)
  ;(await stream.retainFromRecord(2)).expect(204)
  ;(await stream.retainFromRecord(1)).expect(409)
})

decision(26, "2.2", "retention?record on a stream without records: 400", async () => {
  const { stream } = await messages(2)
  ;(await stream.retainFromRecord(0)).expect(400)
})

decision(27, "2.2", "a fork inherits the retained offset; forking below it: 410", async (t) => {
  const stream = await bucket.records(range(0, 6))
  const at = async (record) => (await stream.readRecords(`?record=0&max_records=${record}`)).offset
  const [two, three, five] = [await at(2), await at(3), await at(5)]
  await stream.trimBefore(3)
  const fork = await stream.fork(t, five)
  if (fork === undefined) return
  const head = (await fork.head()).expect(200)
  assert.equal(head.header("Stream-Record-First"), "3")
  assert.equal(head.header("Stream-Record-Next"), "5")
  ;(await fork.get("?record=2")).expect(410)
  ;(await fork.get("?offset=-1")).expect(410)
  assert.deepEqual(await readValues(fork, three), [3, 4])
  assert.equal((await fork.append("own")).start, 5)
  const below = bucket.stream(JSON_TYPE)
  ;(await below.put({ headers: stream.forkHeaders(two) })).expect(410)
  ;(await below.head()).expect(404)
})

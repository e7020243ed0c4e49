// Sections 2.1 to 2.6: publishing, reading and deleting snapshots. Retention is in 2b.

import assert from "node:assert/strict"

import {
  BYTES,
  Bucket,
  Stream,
  TEXT,
  beyond,
  between,
  clause,
  decision,
  frames,
  from,
  inParallel,
  range,
  readBytes,
  readValues,
  segment,
  should,
  unique,
} from "./harness.mjs"
import { BASE_PATH, BASE_URL, receiveSlowly, send, sendSlowly } from "./http.mjs"
import { snapshotDigest } from "./blake3.mjs"

const bucket = await Bucket.create()

/** A text stream with these messages, and the offset behind each. */
async function messages(parts, type = TEXT) {
  const stream = await bucket.make(type)
  const start = await stream.tail()
  const offsets = []
  for (const part of parts) offsets.push((await stream.append(part)).offset)
  return { stream, start, offsets }
}

/** The path below the base URL that a Location header means. */
function pathOf(answer) {
  const path = new URL(answer.require("Location"), new URL(answer.request.split(" ")[1], BASE_URL)).pathname
  assert.ok(path.startsWith(BASE_PATH), `${answer}`)
  return path.slice(BASE_PATH.length)
}

/** What HEAD says about the visible snapshot. */
async function visible(stream) {
  const head = (await stream.head()).expect(200)
  return { offset: head.header("Stream-Snapshot-Offset"), digest: head.header("Stream-Snapshot-Digest") }
}

/** The digest of a publish that must succeed. */
const published = async (answer) => (await answer).expect(204).require("Stream-Snapshot-Digest")

// --- 2.1

clause("2.1", "every Stream-Next-Offset of an append is a boundary that a snapshot can be published at", async () => {
  const { stream, offsets } = await messages(["a", "bcd", "\n", "ef".repeat(40), "g"])
  for (const offset of offsets) await published(stream.publish(offset, `up to ${offset}`))
})

clause("2.1", "one boundary model: each frame of a batch is a message, for snapshots and bootstrap alike", async () => {
  const { stream, offsets } = await messages(["one"])
  ;(await stream.batch(frames(["two", "three"]))).expect(200)
  await stream.append("four")
  await published(stream.publish(offsets[0], "s"))
  const { updates } = await stream.bootstrap()
  assert.deepEqual(
    updates.map((part) => part.text),
    ["two", "three", "four"],
  )
})

// --- 2.2 publish

clause("2.2", "204 when published; the blob comes back byte for byte", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const blob = Buffer.from(range(0, 256).concat([13, 10, 13, 10, 0, 255]))
  ;(await stream.publish(offsets[0], blob, { "Content-Type": BYTES })).expect(204)
  const read = (await stream.snapshot(offsets[0])).expect(200)
  assert.deepEqual(read.body, blob)
})

clause("2.2", "a blob of some megabytes comes back byte for byte", async () => {
  const { stream, offsets } = await messages(["one"])
  const blob = Buffer.alloc(5 * 1024 * 1024 + 17)
  for (let at = 0; at < blob.length; at++) blob[at] = (at * 31 + (at >> 12)) & 255
  ;(await stream.publish(offsets[0], blob)).expect(204)
  const read = (await stream.snapshot(offsets[0])).expect(200)
  assert.ok(read.body.equals(blob), `${read.body.length} bytes of ${blob.length}, or other ones`)
})

clause("2.2", "a blob that comes in chunks, without its length, is a snapshot", async () => {
  const { stream, offsets } = await messages(["one"])
  const body = "0123456789".repeat(10_000)
  ;(await stream.request("PUT", `/snapshot/${segment(offsets[0])}`, { body, chunked: true })).expect(204)
  assert.ok((await stream.snapshot(offsets[0])).expect(200).text === body)
})

clause("2.2", "an empty blob is a snapshot", async () => {
  const { stream, offsets } = await messages(["one"])
  ;(await stream.publish(offsets[0], "", { "Content-Type": "text/x-empty" })).expect(204)
  assert.equal((await visible(stream)).offset, offsets[0])
  const read = (await stream.snapshot(offsets[0])).expect(200)
  assert.equal(read.body.length, 0)
  assert.equal(read.header("Content-Type"), "text/x-empty")
})

clause("2.2", "Content-Type MUST be stored and returned, parameters included", async () => {
  for (const type of ["application/vnd.folded+json; version=2", "image/png", "text/html; charset=utf-8"]) {
    const { stream, offsets } = await messages(["one"])
    ;(await stream.publish(offsets[0], "x", { "Content-Type": type })).expect(204)
    assert.equal((await stream.snapshot(offsets[0])).expect(200).header("Content-Type"), type)
  }
})

clause("2.2", "Content-Type defaults to application/octet-stream", async () => {
  const { stream, offsets } = await messages(["one"])
  ;(await stream.publish(offsets[0], "x")).expect(204)
  assert.equal((await stream.snapshot(offsets[0])).expect(200).header("Content-Type"), BYTES)
})

clause("2.2", "400 if snapshot_offset is invalid", async () => {
  const { stream } = await messages(["one"])
  for (const offset of ["not-an-offset", "$$$", "12 34", "0x10"]) (await stream.publish(offset, "x")).expect(400)
  assert.equal((await visible(stream)).offset, undefined)
})

clause("2.2", "400 if snapshot_offset is not aligned to a message boundary of a byte stream", async (t) => {
  const { stream, start, offsets } = await messages(["first", "second", "third"])
  const inside = [between(start, offsets[0]), between(offsets[0], offsets[1]), between(offsets[1], offsets[2])]
  if (inside.includes(undefined)) return t.skip("the offsets of this server do not count bytes")
  for (const offset of inside) (await stream.publish(offset, "x")).expect(400)
  assert.equal((await visible(stream)).offset, undefined)
})

clause("2.2", "404 if the stream does not exist", async () => {
  const { offsets } = await messages(["one"])
  ;(await bucket.stream(TEXT).publish(offsets[0], "x")).expect(404)
  const {
    stream,
    offsets: [gone],
  } = await messages(["one"])
  ;(await stream.delete()).expect(204)
  ;(await stream.publish(gone, "x")).expect(404)
})

clause("2.2", "409 if snapshot_offset exceeds the current tail", async (t) => {
  const { stream, offsets } = await messages(["one"])
  const past = beyond(offsets[0])
  if (past === undefined) return t.skip("the offsets of this server do not end in digits")
  ;(await stream.publish(past, "x")).expect(409)
  assert.equal((await visible(stream)).offset, undefined)
})

clause("2.2", "410 if snapshot_offset is older than the earliest retained offset", async () => {
  const { stream, offsets } = await messages(["one", "two", "three"])
  await published(stream.publish(offsets[1], "x"))
  ;(await stream.retain(offsets[1])).ok()
  ;(await stream.publish(offsets[0], "y")).expect(410)
  assert.equal((await visible(stream)).offset, offsets[1])
})

clause("2.2", "413 if the snapshot exceeds the server's size limit", async () => {
  const { stream, offsets } = await messages(["one"])
  // No server takes 2^52 bytes; it must not wait for them either.
  const path = `${stream.path}/snapshot/${segment(offsets[0])}`
  const upload = await sendSlowly("PUT", path, { length: 2 ** 52, firstBytes: Buffer.alloc(1024) })
  ;(await upload.answer).expect(413)
  upload.abandon()
  assert.equal((await visible(stream)).offset, undefined)
  await stream.append("still open")
})

clause("2.2", "Stream-Snapshot-Digest MUST be returned for a successful publish", async () => {
  const { stream, offsets } = await messages(["one"])
  assert.ok((await published(stream.publish(offsets[0], "x"))).length > 0)
})

clause("2.2", "Stream-Snapshot-Match that matches: published", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const first = await published(stream.publish(offsets[0], "x"))
  const second = await published(stream.publish(offsets[1], "y", { "Stream-Snapshot-Match": first }))
  assert.deepEqual(await visible(stream), { offset: offsets[1], digest: second })
})

clause("2.2", "Stream-Snapshot-Match that does not match MUST be rejected with 409, and changes nothing", async () => {
  const { stream, offsets } = await messages(["one", "two", "three"])
  const first = await published(stream.publish(offsets[0], "x"))
  const second = await published(stream.publish(offsets[1], "y"))
  ;(await stream.publish(offsets[2], "z", { "Stream-Snapshot-Match": first })).expect(409)
  assert.deepEqual(await visible(stream), { offset: offsets[1], digest: second })
  assert.equal((await stream.snapshot(offsets[1])).expect(200).text, "y")
  ;(await stream.snapshot(offsets[2])).expect(404)
})

clause("2.2", "of concurrent publishers that match the same digest exactly one succeeds", async () => {
  const { stream, offsets } = await messages(range(0, 9).map((n) => `message ${n}`))
  const first = await published(stream.publish(offsets[0], "x"))
  const answers = await inParallel(range(1, 9), (n) =>
    stream.publish(offsets[n], `blob ${n}`, { "Stream-Snapshot-Match": first }),
  )
  const won = answers.map((answer, n) => (answer.expect(204, 409).status === 204 ? n + 1 : 0)).filter(Boolean)
  assert.equal(won.length, 1, `won: ${won}`)
  assert.equal((await visible(stream)).offset, offsets[won[0]])
  assert.equal((await stream.snapshot(offsets[won[0]])).expect(200).text, `blob ${won[0]}`)
})

clause("2.2", "repeating a publish with the same type and body MUST succeed with the same digest", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const publish = () => stream.publish(offsets[0], "x", { "Content-Type": TEXT })
  const digest = await published(publish())
  assert.equal(await published(publish()), digest)
  await stream.append("three")
  assert.equal(await published(publish()), digest, "also when the stream has grown")
  assert.deepEqual(await visible(stream), { offset: offsets[0], digest })
})

clause("2.2", "different content at an already-published offset MUST be 409, and the first stays", async () => {
  const { stream, offsets } = await messages(["one"])
  const digest = await published(stream.publish(offsets[0], "x", { "Content-Type": TEXT }))
  ;(await stream.publish(offsets[0], "y", { "Content-Type": TEXT })).expect(409)
  ;(await stream.publish(offsets[0], "", { "Content-Type": TEXT })).expect(409)
  assert.deepEqual(await visible(stream), { offset: offsets[0], digest })
  assert.equal((await stream.snapshot(offsets[0])).expect(200).text, "x")
})

clause("2.2", "the same body with another content type at an already-published offset MUST be 409", async () => {
  const { stream, offsets } = await messages(["one"])
  await published(stream.publish(offsets[0], "x", { "Content-Type": TEXT }))
  ;(await stream.publish(offsets[0], "x", { "Content-Type": "text/html" })).expect(409)
  assert.equal((await stream.snapshot(offsets[0])).expect(200).header("Content-Type"), TEXT)
})

clause("2.2", "publishing MUST NOT change the earliest retained offset: all before it can be read", async () => {
  const { stream, start, offsets } = await messages(["one", "two", "three"])
  await published(stream.publish(offsets[2], "folded"))
  assert.equal(String(await readBytes(stream)), "onetwothree")
  assert.equal(String(await readBytes(stream, start)), "onetwothree")
  assert.equal(String(await readBytes(stream, offsets[0])), "twothree")
})

clause("2.2", "publishing changes neither the tail nor what is read", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const before = (await stream.get()).expect(200)
  await published(stream.publish(offsets[0], "folded"))
  const now = (await stream.get()).expect(200)
  assert.deepEqual(now.body, before.body)
  assert.equal(now.header("ETag"), before.header("ETag"))
  assert.equal(await stream.tail(), offsets[1])
})

clause("2.2", "a new snapshot replaces the previous one immediately", async () => {
  const { stream, offsets } = await messages(["one", "two", "three"])
  for (const [n, offset] of offsets.entries()) {
    const digest = await published(stream.publish(offset, `blob ${n}`))
    assert.deepEqual(await visible(stream), { offset, digest })
    const latest = (await stream.request("GET", "/snapshot")).expect(307)
    assert.equal((await send("GET", pathOf(latest))).expect(200).text, `blob ${n}`)
  }
})

clause(
  "2.2",
  "snapshot creation MUST NOT block appends: one is acknowledged while the blob is still being sent",
  async () => {
    const { stream, offsets } = await messages(["one"])
    const path = `${stream.path}/snapshot/${segment(offsets[0])}`
    const upload = await sendSlowly("PUT", path, { length: 10, firstBytes: "12345" })
    const { offset } = await stream.append("two")
    assert.equal(await stream.tail(), offset)
    assert.equal((await visible(stream)).offset, undefined, "half a snapshot is none")
    ;(await upload.finish("67890")).expect(204)
    assert.equal((await stream.snapshot(offsets[0])).expect(200).text, "1234567890")
    assert.equal(String(await readBytes(stream, offsets[0])), "two", "updates beyond the offset are not folded in")
  },
)

clause("2.2", "a snapshot whose upload is broken off is not published", async () => {
  const { stream, offsets } = await messages(["one"])
  const path = `${stream.path}/snapshot/${segment(offsets[0])}`
  const upload = await sendSlowly("PUT", path, { length: 10, firstBytes: "12345" })
  upload.abandon()
  await upload.answer.catch(() => {})
  assert.equal((await visible(stream)).offset, undefined)
  ;(await stream.request("GET", "/snapshot")).expect(404)
  await published(stream.publish(offsets[0], "whole"))
})

/** Begins to publish ten bytes, of which half are sent. */
const publishSlowly = (stream, offset, headers) =>
  sendSlowly("PUT", `${stream.path}/snapshot/${segment(offset)}`, { headers, length: 10, firstBytes: "12345" })

clause("2.2", "a snapshot whose stream is replaced while it is sent is not given to the new stream", async () => {
  const { stream, offsets } = await messages(["one"])
  const upload = await publishSlowly(stream, offsets[0])
  ;(await stream.delete()).expect(204)
  ;(await stream.put({ body: "one" })).expect(201)
  const answer = await upload.finish("67890")
  assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
  assert.deepEqual(await visible(stream), { offset: undefined, digest: undefined })
})

clause("2.2", "Stream-Snapshot-Match is about the snapshot that is visible when the new one is published", async () => {
  const { stream, offsets } = await messages(["one", "two", "three"])
  const first = await published(stream.publish(offsets[0], "x"))
  const upload = await publishSlowly(stream, offsets[2], { "Stream-Snapshot-Match": first })
  const second = await published(stream.publish(offsets[1], "y"))
  ;(await upload.finish("67890")).expect(409)
  assert.deepEqual(await visible(stream), { offset: offsets[1], digest: second })
})

clause("2.2", "a snapshot that retention overtakes while it is sent is refused with 409 or 410", async () => {
  const { stream, offsets } = await messages(["one", "two", "three"])
  const upload = await publishSlowly(stream, offsets[0])
  const digest = await published(stream.publish(offsets[1], "y"))
  ;(await stream.retain(offsets[1])).ok()
  ;(await upload.finish("67890")).expect(409, 410)
  assert.deepEqual(await visible(stream), { offset: offsets[1], digest })
})

clause("2.2", "of two contents that are sent for one offset at the same time the second to end is 409", async () => {
  const { stream, offsets } = await messages(["one"])
  const [one, two] = [await publishSlowly(stream, offsets[0]), await publishSlowly(stream, offsets[0])]
  ;(await one.finish("67890")).expect(204)
  ;(await two.finish("00000")).expect(409)
  assert.equal((await stream.snapshot(offsets[0])).expect(200).text, "1234567890")
  const same = await publishSlowly(stream, offsets[0])
  ;(await same.finish("67890")).expect(204)
})

clause(
  "2.2",
  "a reader of a blob that is superseded while it reads gets it as it was, or a broken answer",
  async () => {
    const { stream, offsets } = await messages(["one", "two"])
    const blob = Buffer.alloc(12 * 1024 * 1024, "the old snapshot ")
    ;(await stream.publish(offsets[0], blob)).expect(204)
    const reader = await receiveSlowly("GET", `${stream.path}/snapshot/${segment(offsets[0])}`)
    assert.equal(reader.status, 200)
    ;(await stream.publish(offsets[1], "new")).expect(204)
    const read = await reader.finish().catch(() => undefined)
    assert.ok(read === undefined || read.body.equals(blob), "other bytes than those of the snapshot that was asked for")
  },
)

clause("2.2", "a closed stream can be given a snapshot", async () => {
  const { stream, offsets } = await messages(["one"])
  await stream.close()
  await published(stream.publish(offsets[0], "final"))
  assert.equal((await stream.snapshot(offsets[0])).expect(200).text, "final")
  assert.equal((await stream.head()).expect(200).header("Stream-Closed"), "true")
})

clause("2.2", "snapshot?record=r is published at the offset of record r", async () => {
  const stream = await bucket.records(["a", "b", "c", "d"])
  for (const record of [1, 2, 4]) {
    const digest = await published(stream.publishAtRecord(record, `folded ${record}`))
    const { offset, digest: shown } = await visible(stream)
    assert.equal(shown, digest)
    assert.deepEqual(await readValues(stream, offset), ["a", "b", "c", "d"].slice(record))
    assert.equal((await stream.snapshot(offset)).expect(200).text, `folded ${record}`)
    // The same place by its offset is the same publish.
    assert.equal(await published(stream.publish(offset, `folded ${record}`)), digest)
  }
})

clause("2.2", "snapshot?record beyond the record tail is rejected", async () => {
  const stream = await bucket.records(["a"])
  ;(await stream.publishAtRecord(2, "x")).expect(400, 409)
  assert.equal((await visible(stream)).offset, undefined)
})

clause("2.2", "snapshot?record before the first retained record: 410", async () => {
  const stream = await bucket.records(["a", "b", "c"])
  await stream.trimBefore(2)
  ;(await stream.publishAtRecord(1, "x")).expect(410)
})

clause("2.2", "snapshot?record that is no ordinal: 400", async () => {
  const stream = await bucket.records(["a"])
  for (const record of ["-1", "x", "1.5", "", "0x1"]) (await stream.publishAtRecord(record, "x")).expect(400)
})

clause("6.10", "snapshot publication at an intra-record offset MUST return 400", async (t) => {
  const stream = await bucket.records()
  const start = await stream.tail()
  const { offset } = await stream.append(["a record that is long enough"])
  const inside = between(start, offset)
  if (inside === undefined) return t.skip("the offsets of this server do not count bytes")
  ;(await stream.publish(inside, "x")).expect(400)
  assert.equal((await visible(stream)).offset, undefined)
})

decision(26, "2.2", "record on a stream without records: 400", async () => {
  const { stream } = await messages(["one"])
  ;(await stream.publishAtRecord(0, "x")).expect(400)
})

decision(
  18,
  "2.2",
  "the digest is BLAKE3 over the length of the content type, the content type, the body",
  async () => {
    for (const [type, body] of [
      [TEXT, "x"],
      ["a/b; c=d", ""],
      [BYTES, Buffer.alloc(70_000, "0123456789")],
    ]) {
      const { stream, offsets } = await messages(["one"])
      const digest = await published(stream.publish(offsets[0], body, { "Content-Type": type }))
      assert.equal(digest, snapshotDigest(type, Buffer.from(body)), `${type}, ${body.length} bytes`)
    }
  },
)

decision(18, "2.2", "a Stream-Snapshot-Match that is no digest, or without a snapshot, differs: 409", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const digest = snapshotDigest(TEXT, Buffer.from("x"))
  ;(await stream.publish(offsets[0], "x", { "Stream-Snapshot-Match": digest })).expect(409)
  const first = await published(stream.publish(offsets[0], "x"))
  for (const other of ["none", "*", `"${first}"`, first.toUpperCase()]) {
    ;(await stream.publish(offsets[1], "y", { "Stream-Snapshot-Match": other })).expect(409)
  }
  assert.equal((await visible(stream)).offset, offsets[0])
})

decision(19, "2.2", "a retry succeeds even with an outdated Stream-Snapshot-Match", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const first = await published(stream.publish(offsets[0], "x"))
  const retry = () => stream.publish(offsets[1], "y", { "Stream-Snapshot-Match": first })
  const second = await published(retry())
  assert.equal(await published(retry()), second)
})

decision(19, "2.2", "-1 and now are malformed here: 400", async () => {
  const { stream } = await messages(["one"])
  for (const offset of ["-1", "now"]) (await stream.publish(offset, "x")).expect(400)
})

decision(19, "2.2", "the very start and the tail are aligned, also of an empty stream", async () => {
  const { stream, start, offsets } = await messages(["one"])
  await published(stream.publish(start, "nothing"))
  await published(stream.publish(offsets[0], "all"))
  const empty = await bucket.make(TEXT)
  await published(empty.publish(await empty.tail(), "nothing"))
  const { snapshot, updates } = await empty.bootstrap()
  assert.deepEqual([snapshot.text, updates.length], ["nothing", 0])
})

decision(19, "2.2", "older than the visible snapshot: 409", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  await published(stream.publish(offsets[1], "x"))
  ;(await stream.publish(offsets[0], "y")).expect(409)
  assert.equal((await visible(stream)).offset, offsets[1])
})

decision(19, "2.2", "the order of checks", async () => {
  const { stream, start, offsets } = await messages(["first", "second", "third", "fourth"])
  const digest = await published(stream.publish(offsets[1], "x"))
  ;(await stream.retain(offsets[1])).ok()
  const wrong = { "Stream-Snapshot-Match": "other" }
  // Malformed, before everything but the stream's absence.
  ;(await stream.publish("nonsense", "y", wrong)).expect(400)
  ;(await bucket.stream(TEXT).publish("nonsense", "y")).expect(404)
  // Before the retained offset, before the match and the alignment.
  ;(await stream.publish(offsets[0], "y", wrong)).expect(410)
  ;(await stream.publish(between(start, offsets[0]), "y")).expect(410)
  // Older than the visible snapshot is 409 also where it is no boundary, which comes later.
  const later = await published(stream.publish(offsets[3], "z", { "Stream-Snapshot-Match": digest }))
  ;(await stream.publish(between(offsets[1], offsets[2]), "y")).expect(409)
  assert.deepEqual(await visible(stream), { offset: offsets[3], digest: later })
  // The match before the alignment.
  const { offset } = await stream.append("fifth")
  ;(await stream.publish(between(offsets[3], offset), "y", wrong)).expect(409)
  ;(await stream.publish(between(offsets[3], offset), "y")).expect(400)
})

decision(19, "2.2", "snapshot?record beyond the tail is 409, like an offset", async () => {
  ;(await (await bucket.records(["a"])).publishAtRecord(2, "x")).expect(409)
})

decision(
  24,
  "2.2",
  "publishing does not renew a TTL: a stream of which only snapshots are published expires",
  async () => {
    const stream = await bucket.make(TEXT, { headers: { "Stream-TTL": "1" } })
    const tail = await stream.tail()
    while ((await stream.publish(tail, "x")).expect(204, 404).status === 204);
    ;(await stream.snapshot(tail)).expect(404)
  },
)

decision(9, "2.2", "a plain decimal is an offset: the byte position", async () => {
  const { stream, offsets } = await messages(["12345", "678"])
  ;(await stream.publish("5", "x")).expect(204)
  assert.equal((await visible(stream)).offset, offsets[0])
  assert.equal((await stream.snapshot("5")).expect(200).text, "x")
  ;(await stream.publish("6", "y")).expect(400)
  ;(await stream.publish("9", "y")).expect(409)
})

decision(8, "2.2", "an offset of the stream's earlier life is never taken for one of this life", async () => {
  const { stream, offsets } = await messages(["one"])
  ;(await stream.delete()).expect(204)
  ;(await stream.put({ body: "one" })).expect(201)
  const answer = await stream.publish(offsets[0], "x")
  assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
  assert.equal((await visible(stream)).offset, undefined)
})

// --- 2.3

clause("2.3", "307 to {stream_url}/snapshot/{snapshot_offset} when a snapshot exists", async () => {
  const { stream, offsets } = await messages(["one"])
  await published(stream.publish(offsets[0], "blob"))
  const answer = (await stream.request("GET", "/snapshot")).expect(307)
  const path = pathOf(answer)
  const at = path.lastIndexOf("/")
  assert.equal(decodeURIComponent(path.slice(0, at)), decodeURIComponent(`${stream.path}/snapshot`))
  assert.equal(decodeURIComponent(path.slice(at + 1)), offsets[0])
  assert.equal((await send("GET", path)).expect(200).text, "blob")
})

clause("2.3", "404 when no snapshot exists, and when no stream does", async () => {
  const { stream } = await messages(["one"])
  ;(await stream.request("GET", "/snapshot")).expect(404)
  ;(await bucket.stream(TEXT).request("GET", "/snapshot")).expect(404)
})

clause("2.3", "the Location of a stream with a name that must be escaped can be followed", async () => {
  const stream = await bucket.make(TEXT, { id: `${unique("ü")} ?#%&` })
  const { offset } = await stream.append("one")
  await published(stream.publish(offset, "blob"))
  const answer = (await stream.request("GET", "/snapshot")).expect(307)
  assert.equal((await send("GET", pathOf(answer))).expect(200).text, "blob")
})

decision(2, "2.3", "Location is absolute", async () => {
  const { stream, offsets } = await messages(["one"])
  await published(stream.publish(offsets[0], "blob"))
  const location = (await stream.request("GET", "/snapshot")).expect(307).require("Location")
  assert.equal(location, `${BASE_URL.origin}${BASE_PATH}${stream.path}/snapshot/${offsets[0]}`)
})

// --- 2.4

should("2.4", "HEAD SHOULD include Stream-Snapshot-Offset when a visible snapshot exists", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const digest = await published(stream.publish(offsets[0], "blob"))
  assert.deepEqual(await visible(stream), { offset: offsets[0], digest })
})

clause("2.4", "absence of Stream-Snapshot-Offset means that there is no snapshot", async () => {
  const { stream } = await messages(["one"])
  assert.deepEqual(await visible(stream), { offset: undefined, digest: undefined })
})

clause("2.4", "Stream-Snapshot-Offset on HEAD MUST refer to the snapshot that GET /snapshot resolves to", async (t) => {
  const { stream, offsets } = await messages(["one", "two"])
  for (const offset of offsets) {
    await published(stream.publish(offset, "blob"))
    const shown = (await visible(stream)).offset
    if (shown === undefined) return t.skip("HEAD does not show snapshots; it is not required to")
    const path = pathOf((await stream.request("GET", "/snapshot")).expect(307))
    assert.equal(decodeURIComponent(path.slice(path.lastIndexOf("/") + 1)), shown)
  }
})

clause(
  "2.4",
  "Stream-Snapshot-Digest is a digest of content type and body: it differs with either, and with nothing else",
  async () => {
    const { stream, offsets } = await messages(["1", "2", "3", "4"])
    const digests = []
    for (const [n, [type, body]] of [
      [TEXT, "x"],
      [TEXT, "y"],
      ["text/html", "x"],
      [TEXT, "x"],
    ].entries()) {
      digests.push(await published(stream.publish(offsets[n], body, { "Content-Type": type })))
      assert.equal((await visible(stream)).digest ?? digests[n], digests[n])
    }
    assert.equal(new Set(digests.slice(0, 3)).size, 3, `${digests}`)
    assert.equal(digests[3], digests[0])
  },
)

// --- 2.5

clause("2.5", "200 with Content-Type, Stream-Snapshot-Offset, Stream-Snapshot-Digest, Stream-Next-Offset", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const digest = await published(stream.publish(offsets[0], "blob", { "Content-Type": "text/x-folded" }))
  const read = (await stream.snapshot(offsets[0])).expect(200)
  assert.equal(read.text, "blob")
  assert.equal(read.header("Content-Type"), "text/x-folded")
  assert.equal(read.header("Stream-Snapshot-Offset"), offsets[0])
  assert.equal(read.header("Stream-Snapshot-Digest"), digest)
  assert.equal(String(await readBytes(stream, read.require("Stream-Next-Offset"))), "two", "what follows the snapshot")
})

clause("2.5", "Stream-Up-To-Date says whether the stream has updates beyond the snapshot", async () => {
  const { stream, offsets } = await messages(["one"])
  await published(stream.publish(offsets[0], "blob"))
  assert.equal((await stream.snapshot(offsets[0])).expect(200).header("Stream-Up-To-Date"), "true")
  await stream.append("two")
  assert.notEqual((await stream.snapshot(offsets[0])).expect(200).header("Stream-Up-To-Date"), "true")
})

clause("2.5", "404 if the snapshot does not exist", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  ;(await stream.snapshot(offsets[0])).expect(404)
  await published(stream.publish(offsets[1], "blob"))
  ;(await stream.snapshot(offsets[0])).expect(404)
  ;(await bucket.stream(TEXT).snapshot(offsets[0])).expect(404)
})

clause("2.5", "404 once the stream is deleted, also when it is created again", async () => {
  const { stream, offsets } = await messages(["one"])
  await published(stream.publish(offsets[0], "blob"))
  ;(await stream.delete()).expect(204)
  ;(await stream.snapshot(offsets[0])).expect(404)
  ;(await stream.put({ body: "one" })).expect(201)
  assert.deepEqual(await visible(stream), { offset: undefined, digest: undefined })
  ;(await stream.request("GET", "/snapshot")).expect(404)
  const again = await stream.snapshot(offsets[0])
  assert.ok(again.status === 404 || again.status === 410, `the blob of the deleted stream: ${again}`)
})

decision(19, "2.5", "a snapshot's Stream-Next-Offset is its own offset", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  await published(stream.publish(offsets[0], "blob"))
  assert.equal((await stream.snapshot(offsets[0])).expect(200).header("Stream-Next-Offset"), offsets[0])
})

should("6.10", "snapshot responses SHOULD include Stream-Record-First and Stream-Record-Next", async () => {
  const stream = await bucket.records(["a", "b", "c"])
  await published(stream.publishAtRecord(2, "folded"))
  const read = (await stream.snapshot((await visible(stream)).offset)).expect(200)
  assert.equal(read.header("Stream-Record-First"), "0", `${read}`)
  read.require("Stream-Record-Next")
})

// --- 2.6

clause("2.6", "404 if the snapshot does not exist: no snapshot, another offset, no stream", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  const path = (offset) => `/snapshot/${segment(offset)}`
  ;(await stream.request("DELETE", path(offsets[0]))).expect(404)
  await published(stream.publish(offsets[1], "blob"))
  ;(await stream.request("DELETE", path(offsets[0]))).expect(404)
  ;(await bucket.stream(TEXT).request("DELETE", path(offsets[0]))).expect(404)
})

clause("2.6", "404 if the snapshot has been superseded", async () => {
  const { stream, offsets } = await messages(["one", "two"])
  await published(stream.publish(offsets[0], "old"))
  await published(stream.publish(offsets[1], "new"))
  ;(await stream.request("DELETE", `/snapshot/${segment(offsets[0])}`)).expect(404)
  assert.equal((await stream.snapshot(offsets[1])).expect(200).text, "new")
})

clause("2.6", "409 for the latest visible snapshot, which stays", async () => {
  const { stream, offsets } = await messages(["one"])
  const digest = await published(stream.publish(offsets[0], "blob"))
  ;(await stream.request("DELETE", `/snapshot/${segment(offsets[0])}`)).expect(409)
  assert.deepEqual(await visible(stream), { offset: offsets[0], digest })
  assert.equal((await stream.bootstrap()).snapshot.text, "blob")
})

decision(27, "2.4", "a fork inherits a snapshot at or before its fork point, and no later one", async (t) => {
  const { stream, offsets } = await messages(["one", "two", "three"])
  await published(stream.publish(offsets[1], "blob"))
  const before = await stream.fork(t, offsets[0])
  if (before === undefined) return
  for (const heir of [await stream.fork(t, offsets[1]), await stream.fork(t, offsets[2])]) {
    assert.equal((await visible(heir)).offset, offsets[1])
    assert.equal((await heir.snapshot(offsets[1])).expect(200).text, "blob")
  }
  assert.equal((await visible(before)).offset, undefined)
  await before.append("own")
  assert.equal(String(await readBytes(before)), "oneown")
})

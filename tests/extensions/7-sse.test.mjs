// Section 7: ordinary SSE, and that no extension changes the shape of its data events.

import assert from "node:assert/strict"

import { BYTES, Bucket, JSON_TYPE, TEXT, clause, decision, frames, from, jsonValues, range } from "./harness.mjs"
import { openEvents } from "./http.mjs"

const bucket = await Bucket.create()

async function follow(t, stream, query) {
  const events = await openEvents(t, `${stream.path}${query}`)
  assert.equal(events.status, 200, `${events}`)
  return events
}

/** The bytes that a data event of a binary stream stands for. */
function decoded(data) {
  const text = data.replace(/[\r\n]/g, "")
  assert.match(text, /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/, "raw base64 text")
  return Buffer.from(text, "base64")
}

/** Reads data events until `length` bytes have come. */
async function takeBytes(events, length) {
  let bytes = Buffer.alloc(0)
  while (bytes.length < length) bytes = Buffer.concat([bytes, decoded((await events.nextPair()).data)])
  return bytes
}

const ALL = Buffer.from(range(0, 256))

for (const type of [BYTES, "image/png", "application/x-ndjson", "application/vnd.api+json"]) {
  clause("7", `data of a binary stream is raw base64, with stream-sse-data-encoding: base64: ${type}`, async (t) => {
    const stream = await bucket.make(type, { body: ALL })
    const events = await follow(t, stream, "?offset=-1&live=sse")
    assert.equal(events.header("Stream-SSE-Data-Encoding"), "base64")
    assert.deepEqual(await takeBytes(events, 256), ALL)
    await stream.append(ALL.subarray(3, 8))
    assert.deepEqual(await takeBytes(events, 5), ALL.subarray(3, 8))
  })
}

for (const type of [TEXT, "text/html; charset=utf-8", JSON_TYPE]) {
  clause("7", `data of a text or JSON stream is not base64, and no header says so: ${type}`, async (t) => {
    const stream = await bucket.make(type, { body: '["text"]' })
    const events = await follow(t, stream, "?offset=-1&live=sse")
    assert.equal(events.header("Stream-SSE-Data-Encoding"), undefined)
    assert.deepEqual(jsonValues((await events.nextPair()).data), ["text"])
  })
}

clause("7", "what an append batch appended to a binary stream has the shape of single appends", async (t) => {
  const stream = await bucket.make(BYTES)
  const events = await follow(t, stream, "?offset=-1&live=sse")
  ;(await stream.batch(frames([ALL, "a", ALL]))).expect(200)
  assert.equal(events.header("Stream-SSE-Data-Encoding"), "base64")
  assert.deepEqual(await takeBytes(events, 513), Buffer.concat([ALL, Buffer.from("a"), ALL]))
})

clause("7", "snapshots, attributes and retention do not change the shape of a binary stream's events", async (t) => {
  const stream = await bucket.make(BYTES)
  const { offset } = await stream.append(ALL)
  const live = await follow(t, stream, from(offset, "&live=sse"))
  ;(await stream.putAttributes({ title: "t" })).expect(204)
  ;(await stream.publish(offset, "folded")).expect(204)
  ;(await stream.retain(offset)).ok()
  await stream.append(ALL)
  assert.deepEqual(await takeBytes(live, 256), ALL)
  const events = await follow(t, stream, from(offset, "&live=sse"))
  assert.equal(events.header("Stream-SSE-Data-Encoding"), "base64")
  assert.deepEqual(await takeBytes(events, 256), ALL)
})

clause("7", "snapshots, attributes and retention put nothing into the events of readers that follow", async (t) => {
  const stream = await bucket.make(TEXT)
  const { offset } = await stream.append("one")
  const events = await follow(t, stream, from("-1", "&live=sse"))
  assert.equal((await events.nextPair()).data, "one")
  ;(await stream.putAttributes({ title: "t" })).expect(204)
  ;(await stream.publish(offset, "folded")).expect(204)
  ;(await stream.retain(offset)).ok()
  await stream.append("two")
  assert.equal((await events.nextPair()).data, "two")
})

clause("7", "an ordinary SSE read of a JSON stream has the data events of the base protocol", async (t) => {
  const stream = await bucket.records([{ a: 1 }, [2, 3]])
  const events = await follow(t, stream, "?offset=-1&live=sse")
  const { data, control } = await events.nextPair()
  assert.deepEqual(jsonValues(data), [{ a: 1 }, [2, 3]])
  assert.equal(control.streamNextOffset, await stream.tail())
  assert.equal(control.upToDate, true)
})

decision(29, "7", "a data event of text splits lines at CR, CRLF and LF, and is whole characters", async (t) => {
  const stream = await bucket.make(TEXT, { body: "a\nb\r\nc\rd" })
  const events = await follow(t, stream, "?offset=-1&live=sse")
  assert.equal((await events.nextPair()).data, "a\nb\nc\nd")
  const euro = Buffer.from("€")
  await stream.append(euro.subarray(0, 1))
  await stream.append(Buffer.concat([euro.subarray(1), Buffer.from("!")]))
  assert.equal((await events.nextPair()).data, "€!")
})

// Section 8: offsets in path segments are URL-encoded and decoded like everything else.

import assert from "node:assert/strict"

import { Bucket, JSON_TYPE, TEXT, clause, decision, from, readBytes, segment, unique } from "./harness.mjs"
import { BASE_PATH, BASE_URL, send } from "./http.mjs"

const bucket = await Bucket.create()

/** Every byte as %XX: what a client may send for any text. */
const escaped = (text, digits = (hex) => hex) =>
  [...Buffer.from(text)].map((byte) => `%${digits(byte.toString(16).padStart(2, "0"))}`).join("")
const UPPER = (hex) => hex.toUpperCase()

/** A text stream of three messages, and the offset behind each. */
async function messages(id) {
  const stream = await bucket.make(TEXT, { id })
  const offsets = []
  for (const part of ["one", "two", "three"]) offsets.push((await stream.append(part)).offset)
  return { stream, offsets }
}

clause("8", "publishing decodes the offset of its path segment", async () => {
  for (const digits of [undefined, UPPER]) {
    const { stream, offsets } = await messages()
    ;(await stream.request("PUT", `/snapshot/${escaped(offsets[0], digits)}`, { body: "blob" })).expect(204)
    assert.equal((await stream.snapshot(offsets[0])).expect(200).text, "blob")
  }
})

clause("8", "reading a snapshot decodes the offset", async () => {
  const { stream, offsets } = await messages()
  ;(await stream.publish(offsets[1], "blob")).expect(204)
  for (const digits of [undefined, UPPER]) {
    const read = (await stream.request("GET", `/snapshot/${escaped(offsets[1], digits)}`)).expect(200)
    assert.equal(read.text, "blob")
    assert.equal(read.header("Stream-Snapshot-Offset"), offsets[1], "headers have the offset as it is")
  }
})

clause("8", "a partly encoded offset is the same offset", async () => {
  const { stream, offsets } = await messages()
  const half = escaped(offsets[1].slice(0, 5)) + segment(offsets[1].slice(5))
  ;(await stream.request("PUT", `/snapshot/${half}`, { body: "blob" })).expect(204)
  assert.equal((await stream.snapshot(offsets[1])).expect(200).text, "blob")
})

clause("8", "deleting a snapshot decodes the offset: 409 for the latest, not 404", async () => {
  const { stream, offsets } = await messages()
  ;(await stream.publish(offsets[1], "blob")).expect(204)
  ;(await stream.request("DELETE", `/snapshot/${escaped(offsets[1])}`)).expect(409)
})

clause("8", "retention decodes the offset", async () => {
  const { stream, offsets } = await messages()
  ;(await stream.publish(offsets[1], "blob")).expect(204)
  ;(await stream.request("PUT", `/retention/${escaped(offsets[1])}`)).ok()
  ;(await stream.get(from(offsets[0]))).expect(410)
  assert.equal(String(await readBytes(stream, offsets[1])), "three")
})

clause("8", "the Location of the latest snapshot is encoded so that it can be followed as it is", async () => {
  const { stream, offsets } = await messages()
  ;(await stream.publish(offsets[1], "blob")).expect(204)
  const location = (await stream.request("GET", "/snapshot")).expect(307).require("Location")
  assert.match(location, /^[A-Za-z0-9:/?#[\]@!$&'()*+,;=._~%-]+$/, "characters that a URI may have")
  const { pathname } = new URL(location, `${BASE_URL.origin}${BASE_PATH}${stream.path}/snapshot`)
  assert.equal((await send("GET", pathname.slice(BASE_PATH.length))).expect(200).text, "blob")
})

clause("8", "an encoded slash is no path separator: it is part of a malformed offset", async () => {
  const { stream, offsets } = await messages()
  const answer = await stream.request("PUT", `/snapshot/${segment(offsets[0])}%2F`, { body: "blob" })
  assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
  assert.equal((await stream.head()).header("Stream-Snapshot-Offset"), undefined)
})

clause("8", "an escape that is none is refused with 400", async () => {
  const { stream, offsets } = await messages()
  for (const bad of ["%zz", "%", "%4", `${segment(offsets[0])}%`]) {
    ;(await stream.request("PUT", `/snapshot/${bad}`, { body: "blob" })).expect(400)
  }
})

clause("8", "offsets in queries are decoded, too", async () => {
  const { stream, offsets } = await messages()
  assert.equal((await stream.get(`?offset=${escaped(offsets[0])}`)).expect(200).text, "twothree")
})

clause("8", "a stream id that must be escaped works with every endpoint of its stream", async () => {
  const { stream, offsets } = await messages(`${unique("ä")} &?#+%2F;=`)
  ;(await stream.putAttributes({ title: "t" })).expect(204)
  assert.deepEqual((await stream.getAttributes()).expect(200).json(), { title: "t" })
  ;(await stream.publish(offsets[0], "blob")).expect(204)
  ;(await stream.retain(offsets[0])).ok()
  const { snapshot, updates } = await stream.bootstrap()
  assert.deepEqual([snapshot.text, ...updates.map((part) => part.text)], ["blob", "two", "three"])
  const fully = await send("GET", `${bucket.path}/${escaped(stream.id)}/bootstrap`)
  assert.equal(fully.expect(200).header("Stream-Snapshot-Offset"), offsets[0], "every byte escaped is the same stream")
})

clause("8", "the names of endpoints and record queries go together with an escaped stream id", async () => {
  const stream = await bucket.make(JSON_TYPE, { id: `${unique("r")} ü`, body: "[1,2,3]" })
  ;(await stream.publishAtRecord(2, "blob")).expect(204)
  assert.deepEqual((await stream.readRecords("?record=1")).values, [2, 3])
  assert.deepEqual((await stream.readRecords(`?record=${escaped("1")}`)).values, [2, 3])
})

decision(8, "8", "the tokens of this server need no escapes, and their Location has none", async () => {
  const { stream, offsets } = await messages()
  assert.match(offsets[0], /^\d{16}_\d{16}$/)
  ;(await stream.publish(offsets[0], "blob")).expect(204)
  const location = (await stream.request("GET", "/snapshot")).expect(307).require("Location")
  assert.ok(location.endsWith(`/snapshot/${offsets[0]}`), location)
})

// Section 5: stream attributes.

import assert from "node:assert/strict"

import { Bucket, JSON_TYPE, TEXT, clause, decision, from, inParallel, range, readBytes } from "./harness.mjs"

const bucket = await Bucket.create()
const BYTES_MAX = 16 * 1024
const FULL = {
  title: "Support session",
  metadata: { purpose: "customer-support", agent: { id: "agent_1", version: 2 }, list: [1, null, true, "x", [{}]] },
}

/** The stream's attributes. */
async function attributes(stream) {
  const answer = (await stream.getAttributes()).expect(200)
  assert.equal(answer.mediaType, JSON_TYPE, `${answer}`)
  return answer.json()
}

/** An attribute object whose text has exactly so many bytes. */
const ofBytes = (bytes, member = "title") => {
  const object = (text) => JSON.stringify(member === "title" ? { title: text } : { metadata: { k: text } })
  return object("x".repeat(bytes - object("").length))
}

// --- 5.1, 5.3, 5.4

clause("5.3", "when no attributes are set the body is {}", async () => {
  const stream = await bucket.make(TEXT)
  assert.deepEqual(await attributes(stream), {})
})

clause("5.3", "200 with the current attribute object as application/json", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes(FULL)).expect(204)
  assert.deepEqual(await attributes(stream), FULL)
})

clause("5.3", "404 if the stream does not exist", async () => {
  ;(await bucket.stream(TEXT).getAttributes()).expect(404)
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes(FULL)).expect(204)
  ;(await stream.delete()).expect(204)
  ;(await stream.getAttributes()).expect(404)
})

clause("5.3", "404 if the stream has expired; the same for a replacement", async () => {
  const stream = await bucket.make(TEXT, { headers: { "Stream-TTL": "1", "Stream-Attrs": JSON.stringify(FULL) } })
  assert.deepEqual(await attributes(stream), FULL)
  // HEAD does not renew a stream.
  while ((await stream.head()).status !== 404);
  ;(await stream.getAttributes()).expect(404)
  ;(await stream.putAttributes({})).expect(404)
})

clause("5.3", "a stream that is deleted and created again begins without attributes", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes(FULL)).expect(204)
  ;(await stream.delete()).expect(204)
  ;(await stream.put()).expect(201)
  assert.deepEqual(await attributes(stream), {})
})

clause("5.4", "204 when replaced, and 204 when the object already matched", async () => {
  const stream = await bucket.make(TEXT)
  for (const _ of range(0, 2)) (await stream.putAttributes(FULL)).expect(204)
  assert.deepEqual(await attributes(stream), FULL)
})

clause("5.4", "the body replaces the complete object: nothing is merged", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes(FULL)).expect(204)
  ;(await stream.putAttributes({ title: "only" })).expect(204)
  assert.deepEqual(await attributes(stream), { title: "only" })
  ;(await stream.putAttributes({ metadata: { a: 1 } })).expect(204)
  assert.deepEqual(await attributes(stream), { metadata: { a: 1 } })
})

clause("5.4", "submitting {} clears the attributes", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes(FULL)).expect(204)
  ;(await stream.putAttributes({})).expect(204)
  assert.deepEqual(await attributes(stream), {})
})

clause("5.4", "attributes MAY be updated after a stream is closed", async () => {
  const stream = await bucket.make(TEXT)
  await stream.close()
  ;(await stream.putAttributes(FULL)).expect(204)
  assert.deepEqual(await attributes(stream), FULL)
})

clause("5.4", "a body that comes in chunks is taken like any other; one that is too large is 400", async () => {
  const stream = await bucket.make(TEXT)
  const put = (body) => stream.request("PUT", "/attrs", { body, chunked: true, headers: { "Content-Type": JSON_TYPE } })
  ;(await put(JSON.stringify(FULL))).expect(204)
  ;(await put(ofBytes(BYTES_MAX + 1))).expect(400)
  assert.deepEqual(await attributes(stream), FULL)
})

clause("5.4", "404 if the stream does not exist", async () => {
  ;(await bucket.stream(TEXT).putAttributes(FULL)).expect(404)
})

clause("5.4", "400 if Content-Type is missing", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes(FULL, {})).expect(400)
  assert.deepEqual(await attributes(stream), {})
})

for (const type of [TEXT, "application/x-www-form-urlencoded", "application/jsonx", "application/merge-patch+json"]) {
  clause("5.4", `400 if the content type is not application/json: ${type}`, async () => {
    const stream = await bucket.make(TEXT)
    ;(await stream.putAttributes(FULL, { "Content-Type": type })).expect(400)
    assert.deepEqual(await attributes(stream), {})
  })
}

clause("5.4", "application/json with a parameter is application/json", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes(FULL, { "Content-Type": "application/json; charset=utf-8" })).expect(204)
  assert.deepEqual(await attributes(stream), FULL)
})

for (const body of [
  "",
  "{",
  "[]",
  "null",
  '"title"',
  "1",
  '{"title":1}',
  '{"title":["a"]}',
  '{"metadata":[]}',
  '{"metadata":"x"}',
  "{}{}",
  "{'title':'a'}",
]) {
  clause("5.4", `400 if the body is not a valid attribute JSON object: ${body || "empty"}`, async () => {
    const stream = await bucket.make(TEXT)
    ;(await stream.putAttributes({ title: "kept" })).expect(204)
    ;(await stream.putAttributes(body)).expect(400)
    assert.deepEqual(await attributes(stream), { title: "kept" }, "a refused replacement changes nothing")
  })
}

clause("5.1", "objects with unknown top-level fields MUST be accepted, and those MUST NOT be stored", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes({ ...FULL, owner: "x", Title: "y", nested: { title: "z" } })).expect(204)
  assert.deepEqual(await attributes(stream), FULL)
  ;(await stream.putAttributes({ unknown: 1 })).expect(204)
  assert.deepEqual(await attributes(stream), {})
})

clause("5.1", "metadata is arbitrary: depth, every kind of value, names like those of the top", async () => {
  const stream = await bucket.make(TEXT)
  const deep = range(0, 20).reduce((inner, n) => ({ [`level ${n}`]: inner }), "core")
  const object = {
    title: "",
    metadata: { title: 1, metadata: [null, false, -1.5e-7, '\u0000\n"\\ü😀', {}, []], deep, "": "empty" },
  }
  ;(await stream.putAttributes(object)).expect(204)
  assert.deepEqual(await attributes(stream), object)
})

clause("5.1", "numbers in metadata keep their value: integers of 64 bits do not become floats", async () => {
  const stream = await bucket.make(TEXT)
  const numbers = ["9007199254740993", "18446744073709551615", "-9223372036854775808", "0.1"]
  ;(await stream.putAttributes(`{"metadata":{"numbers":[${numbers}]}}`)).expect(204)
  const { text } = (await stream.getAttributes()).expect(200)
  for (const number of numbers) assert.ok(text.includes(number), `${number} is gone: ${text}`)
})

clause("5.1", "the encoded object MUST NOT exceed 16 KiB: exactly that is accepted", async () => {
  for (const member of ["title", "metadata"]) {
    const stream = await bucket.make(TEXT)
    const largest = ofBytes(BYTES_MAX, member)
    assert.equal(Buffer.byteLength(largest), BYTES_MAX)
    ;(await stream.putAttributes(largest)).expect(204)
    assert.deepEqual(await attributes(stream), JSON.parse(largest))
  }
})

clause("5.1", "larger attribute documents MUST be rejected with 400: one byte more, and much more", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes({ title: "kept" })).expect(204)
  for (const bytes of [BYTES_MAX + 1, 64 * 1024, 1024 * 1024]) {
    for (const member of ["title", "metadata"]) (await stream.putAttributes(ofBytes(bytes, member))).expect(400)
  }
  assert.deepEqual(await attributes(stream), { title: "kept" })
})

clause("5.1", "the limit counts bytes, not characters", async () => {
  const stream = await bucket.make(TEXT)
  // 9,000 characters of two bytes.
  ;(await stream.putAttributes({ title: "é".repeat(9000) })).expect(400)
  ;(await stream.putAttributes({ title: "é".repeat(8000) })).expect(204)
  assert.deepEqual(await attributes(stream), { title: "é".repeat(8000) })
})

clause("5", "of concurrent replacements one is there as a whole", async () => {
  const stream = await bucket.make(TEXT)
  const candidates = range(0, 16).map((n) => ({ title: `title ${n}`, metadata: { n, padding: "x".repeat(n * 100) } }))
  await inParallel(candidates, async (candidate) => (await stream.putAttributes(candidate)).expect(204))
  const found = await attributes(stream)
  assert.deepEqual(found, candidates[found.metadata.n])
})

// --- 5: what attributes must not change

clause(
  "5",
  "updating attributes MUST NOT change offsets, ETag, content type, closed state or ordinary reads",
  async () => {
    for (const [type, body] of [
      [TEXT, "some text"],
      [JSON_TYPE, "[1,2]"],
    ]) {
      for (const closed of [false, true]) {
        const stream = await bucket.make(type, { body })
        if (closed) await stream.close()
        const telling = [
          "stream-next-offset",
          "etag",
          "content-type",
          "stream-closed",
          "stream-record-first",
          "stream-record-next",
        ]
        const look = async () => {
          const [head, read] = [(await stream.head()).expect(200), (await stream.get()).expect(200)]
          return [read.text, ...telling.map((name) => [name, head.header(name), read.header(name)])]
        }
        const before = await look()
        ;(await stream.putAttributes(FULL)).expect(204)
        assert.deepEqual(await look(), before)
        ;(await stream.putAttributes({})).expect(204)
        assert.deepEqual(await look(), before)
      }
    }
  },
)

clause("5", "a reader's ETag still holds after attributes have changed: 304", async () => {
  const stream = await bucket.make(TEXT, { body: "some text" })
  const etag = (await stream.get()).require("ETag")
  ;(await stream.putAttributes(FULL)).expect(204)
  ;(await stream.get("", { "If-None-Match": etag })).expect(304)
})

clause("5", "updating attributes MUST NOT change snapshots or bootstrap payloads", async () => {
  const stream = await bucket.records([1, 2, 3])
  ;(await stream.publishAtRecord(2, "folded", { "Content-Type": TEXT })).expect(204)
  const look = async () => {
    const { answer, snapshot, updates } = await stream.bootstrap()
    const digest = (await stream.head()).header("Stream-Snapshot-Digest")
    return [
      answer.header("Stream-Snapshot-Offset"),
      answer.header("Stream-Next-Offset"),
      snapshot.text,
      snapshot.contentType,
      digest,
      ...updates.map((part) => part.text),
    ]
  }
  const before = await look()
  ;(await stream.putAttributes(FULL)).expect(204)
  assert.deepEqual(await look(), before)
})

clause("5", "a long-poll is not woken by attributes: it waits for data", async () => {
  const stream = await bucket.make(TEXT)
  const poll = stream.get(from(await stream.tail(), "&live=long-poll"))
  ;(await stream.putAttributes(FULL)).expect(204)
  await stream.append("data")
  assert.equal((await poll).expect(200).text, "data")
})

clause("5", "appends go on as if there were no attributes", async () => {
  const stream = await bucket.make(TEXT)
  await stream.append("a")
  ;(await stream.putAttributes(FULL)).expect(204)
  await stream.append("b")
  assert.equal(String(await readBytes(stream)), "ab")
  assert.deepEqual(await attributes(stream), FULL)
})

// --- 5.2

const withAttributes = (value) => ({
  headers: { "Stream-Attrs": typeof value === "string" ? value : JSON.stringify(value) },
})

clause("5.2", "attributes MAY be supplied when creating a stream", async () => {
  for (const type of [TEXT, JSON_TYPE]) {
    const stream = bucket.stream(type)
    ;(await stream.put({ body: "[1]", ...withAttributes(FULL) })).expect(201)
    assert.deepEqual(await attributes(stream), FULL)
  }
})

clause("5.2", "creating again is idempotent if the attributes match: 200", async () => {
  const stream = await bucket.make(TEXT, withAttributes(FULL))
  ;(await stream.put(withAttributes(FULL))).expect(200)
  ;(await stream.put(withAttributes(` ${JSON.stringify(FULL, null, 1).replace(/\n/g, "")} `))).expect(200)
})

clause("5.2", "the order of members does not make a mismatch", async () => {
  const stream = await bucket.make(TEXT, withAttributes('{"title":"t","metadata":{"a":1,"b":2}}'))
  ;(await stream.put(withAttributes('{"metadata":{"b":2,"a":1},"title":"t"}'))).expect(200)
})

clause("5.2", "a mismatch MUST return 409", async () => {
  const stream = await bucket.make(TEXT, withAttributes(FULL))
  for (const other of [
    { title: "other" },
    { ...FULL, title: "other" },
    { title: FULL.title },
    { metadata: FULL.metadata },
    {},
  ]) {
    ;(await stream.put(withAttributes(other))).expect(409)
  }
  assert.deepEqual(await attributes(stream), FULL)
  const bare = await bucket.make(TEXT)
  ;(await bare.put(withAttributes(FULL))).expect(409)
  assert.deepEqual(await attributes(bare), {})
})

clause("5.2", "{} equals no attributes: normalisation before matching", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.put(withAttributes({}))).expect(200)
  const empty = await bucket.make(TEXT, withAttributes({}))
  ;(await empty.put()).expect(200)
  assert.deepEqual(await attributes(empty), {})
})

clause("5.2", "the existing attributes are the present ones, not those of the creation", async () => {
  const stream = await bucket.make(TEXT, withAttributes(FULL))
  ;(await stream.putAttributes({ title: "new" })).expect(204)
  ;(await stream.put(withAttributes(FULL))).expect(409)
  ;(await stream.put(withAttributes({ title: "new" }))).expect(200)
  ;(await stream.putAttributes({})).expect(204)
  ;(await stream.put()).expect(200)
})

clause("5.1", "unknown fields in Stream-Attrs are ignored, in matching too", async () => {
  const stream = await bucket.make(TEXT, withAttributes({ title: "t", owner: 1 }))
  assert.deepEqual(await attributes(stream), { title: "t" })
  ;(await stream.put(withAttributes({ owner: 2, title: "t" }))).expect(200)
})

clause("5.1", "Stream-Attrs that is larger than 16 KiB MUST be rejected with 400, and nothing is created", async () => {
  const stream = bucket.stream(TEXT)
  ;(await stream.put(withAttributes(ofBytes(BYTES_MAX + 1)))).expect(400)
  ;(await stream.head()).expect(404)
})

clause("5.1", "Stream-Attrs of exactly 16 KiB is accepted", async () => {
  const stream = await bucket.make(TEXT, withAttributes(ofBytes(BYTES_MAX)))
  assert.deepEqual(await attributes(stream), JSON.parse(ofBytes(BYTES_MAX)))
})

clause("5.1", "Stream-Attrs that is no attribute object is rejected with 400, and nothing is created", async () => {
  for (const value of ["{", "[]", "null", '{"title":1}', '{"metadata":[]}', "title"]) {
    const stream = bucket.stream(TEXT)
    ;(await stream.put(withAttributes(value))).expect(400)
    ;(await stream.head()).expect(404)
  }
})

clause("5.2", "escapes in Stream-Attrs are JSON's", async () => {
  const stream = await bucket.make(TEXT, withAttributes('{"title":"\\u00fc \\ud83d\\ude00 \\n"}'))
  assert.deepEqual(await attributes(stream), { title: "ü 😀 \n" })
})

decision(6, "5.2", "an absent Stream-Attrs means {} when matching: 409 for a stream with attributes", async () => {
  const stream = await bucket.make(TEXT, withAttributes(FULL))
  ;(await stream.put()).expect(409)
})

decision(5, "5.3", "the answer has no insignificant white space", async () => {
  const stream = await bucket.make(TEXT)
  ;(await stream.putAttributes(`\n${JSON.stringify(FULL, null, 2)}\n`)).expect(204)
  const { text } = await stream.getAttributes()
  assert.equal(text, JSON.stringify(JSON.parse(text)))
})

decision(24, "5.4", "attributes do not renew a TTL: a stream whose attributes alone are used expires", async () => {
  const stream = await bucket.make(TEXT, { headers: { "Stream-TTL": "1" } })
  while ((await stream.putAttributes({ title: String(Math.random()) })).status === 204) {
    if ((await stream.getAttributes()).status === 404) break
  }
  ;(await stream.head()).expect(404)
})

// Extension Capability Advertisement, and where section 6 demands its token.

import assert from "node:assert/strict"

import {
  BYTES,
  Bucket,
  JSON_TYPE,
  RECORDS_TOKEN,
  TEXT,
  clause,
  decision,
  frames,
  from,
  segment,
  unique,
} from "./harness.mjs"
import { openEvents, send } from "./http.mjs"

const bucket = await Bucket.create()

/** The tokens of an answer. */
const tokens = (answer) =>
  (answer.header("Stream-Extensions") ?? "")
    .split(",")
    .map((token) => token.trim())
    .filter(Boolean)
const advertises = (answer) => assert.ok(tokens(answer).includes(RECORDS_TOKEN), `the token is missing: ${answer}`)
const doesNotAdvertise = (answer) =>
  assert.ok(!tokens(answer).includes(RECORDS_TOKEN), `the token is wrong here: ${answer}`)

clause("0", "Stream-Extensions is a comma-separated list of tokens", async () => {
  const stream = await bucket.records([1])
  for (const answer of [await stream.head(), await stream.get(), await stream.post("2")]) {
    const value = answer.require("Stream-Extensions")
    for (const token of value.split(",")) assert.match(token.trim(), /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, `${answer}`)
    assert.equal(new Set(tokens(answer)).size, tokens(answer).length, `a token twice: ${answer}`)
  }
})

clause("6", "HEAD of a JSON stream MUST advertise json-record-coordinates-v1", async () => {
  advertises((await (await bucket.records()).head()).expect(200))
})

clause("6", "creating a JSON stream MUST advertise the token, and so must creating it again", async () => {
  const stream = bucket.stream(JSON_TYPE)
  advertises((await stream.put({ body: "[1,2]" })).expect(201))
  advertises((await stream.put()).expect(200))
})

clause("6", "an append MUST advertise the token: plain, closing, by a producer, a duplicate", async () => {
  const stream = await bucket.records()
  advertises((await stream.post("1")).ok())
  const producer = { "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0" }
  advertises((await stream.post("2", producer)).ok())
  advertises((await stream.post("2", producer)).ok())
  advertises(await stream.close())
})

clause("6", "an ordinary catch-up read MUST advertise the token: with data, and at the tail", async () => {
  const stream = await bucket.records([1])
  advertises((await stream.get()).expect(200))
  advertises((await stream.get(from("now"))).expect(200))
})

clause("6", "a record-aware read MUST advertise the token: with data, empty, as envelopes", async () => {
  const stream = await bucket.records([1])
  for (const query of ["?record=0", "?record=1", "?record=now", "?tail_records=1", "?record=0&record_view=envelope"]) {
    advertises((await stream.get(query)).expect(200))
  }
})

clause("6", "a long-poll MUST advertise the token: with data, and without", async () => {
  const stream = await bucket.records([1])
  advertises((await stream.get(from("-1", "&live=long-poll"))).expect(200))
  await stream.close()
  advertises((await stream.get(from(await stream.tail(), "&live=long-poll"))).expect(204))
})

clause("6", "an SSE read MUST advertise the token", async (t) => {
  const stream = await bucket.records([1])
  const tokensOf = (events) => (events.header("Stream-Extensions") ?? "").split(",").map((token) => token.trim())
  assert.ok(tokensOf(await openEvents(t, `${stream.path}?offset=-1&live=sse`)).includes(RECORDS_TOKEN))
  assert.ok(tokensOf(await openEvents(t, `${stream.path}?record=0&live=sse`)).includes(RECORDS_TOKEN))
})

clause("6", "an append batch MUST advertise the token", async () => {
  advertises((await (await bucket.records()).batch(frames(["1"]))).expect(200))
})

clause("6", "publishing and reading a snapshot MUST advertise the token", async () => {
  const stream = await bucket.records([1, 2])
  const tail = await stream.tail()
  advertises((await stream.publish(tail, "folded")).expect(204))
  advertises((await stream.request("GET", "/snapshot")).expect(307))
  advertises((await stream.snapshot(tail)).expect(200))
})

clause("6", "setting retention MUST advertise the token", async () => {
  const stream = await bucket.records([1, 2])
  const tail = await stream.tail()
  ;(await stream.publish(tail, "folded")).expect(204)
  advertises((await stream.retain(tail)).ok())
})

clause("6", "bootstrap MUST advertise the token", async () => {
  advertises((await bucket.records([1]).then((stream) => stream.bootstrap())).answer)
})

clause("6", "reading and replacing attributes MUST advertise the token", async () => {
  const stream = await bucket.records()
  advertises((await stream.putAttributes({ title: "t" })).expect(204))
  advertises((await stream.getAttributes()).expect(200))
})

clause("6", "a refusal that reports coordinates MUST advertise the token: 412, 400 beyond the tail, 410", async () => {
  const stream = await bucket.records([1, 2, 3])
  advertises((await stream.post("4", { "Stream-Record-Match": "1" })).expect(412))
  advertises((await stream.get("?record=4")).expect(400))
  await stream.trimBefore(2)
  advertises((await stream.get("?record=1")).expect(410))
})

clause("6", "refused operations on a JSON stream MUST advertise the token: 400, 409", async () => {
  const stream = await bucket.records([1])
  advertises((await stream.post("[]")).expect(400))
  advertises((await stream.post("{")).expect(400))
  advertises((await stream.post("x", { "Content-Type": TEXT })).expect(409))
  advertises((await stream.put({ headers: { "Content-Type": TEXT } })).expect(409))
  await stream.close()
  advertises((await stream.post("2")).expect(409))
})

clause("6", "deleting a JSON stream MUST advertise the token", async () => {
  advertises((await (await bucket.records([1])).delete()).expect(204))
})

clause("6", "304 Not Modified MUST advertise the token", async () => {
  const stream = await bucket.records([1])
  const etag = (await stream.get()).require("ETag")
  advertises((await stream.get("", { "If-None-Match": etag })).expect(304))
})

// A server of other media types without records: each of them looks like JSON, or is text.
for (const type of [
  TEXT,
  BYTES,
  "application/x-ndjson",
  "application/vnd.api+json",
  "application/json-seq",
  "text/json",
]) {
  clause("6", `the token MUST NOT be advertised for a stream of ${type}`, async (t) => {
    const stream = bucket.stream(type)
    doesNotAdvertise((await stream.put({ body: "{}" })).expect(201))
    doesNotAdvertise((await stream.post("{}")).ok())
    doesNotAdvertise((await stream.head()).expect(200))
    doesNotAdvertise((await stream.get()).expect(200))
    doesNotAdvertise((await stream.batch(frames(["{}"]))).expect(200))
    doesNotAdvertise((await stream.get(from("-1", "&live=long-poll"))).expect(200))
    const events = await openEvents(t, `${stream.path}?offset=-1&live=sse`)
    assert.ok(!(events.header("Stream-Extensions") ?? "").includes(RECORDS_TOKEN))
  })
}

clause("0", "tokens MUST apply to the target stream: none for a stream that does not exist", async () => {
  const stream = bucket.stream(JSON_TYPE)
  doesNotAdvertise((await stream.head()).expect(404))
  doesNotAdvertise((await stream.get()).expect(404))
  doesNotAdvertise((await stream.post("1")).expect(404))
})

clause("0", "tokens MUST apply to the target stream: none where no stream is the target", async () => {
  doesNotAdvertise((await send("GET", bucket.path)).expect(200))
  doesNotAdvertise((await bucket.list()).expect(200))
})

decision(6, "6", "application/json with parameters, in any case, is a stream of records", async () => {
  for (const type of ["application/json; charset=utf-8", "Application/JSON"]) {
    const stream = bucket.stream(type)
    advertises((await stream.put({ body: "[1,2]" })).expect(201))
    const head = (await stream.head()).expect(200)
    advertises(head)
    assert.equal(head.header("Stream-Record-Next"), "2", `${head}`)
  }
})

decision(1, "6", "the flat surface has record coordinates", async (t) => {
  const path = `/v1/stream/${segment(unique("ext"))}/of/records`
  t.after(() => send("DELETE", path))
  const created = (await send("PUT", path, { body: "[1,2,3]", headers: { "Content-Type": JSON_TYPE } })).expect(201)
  advertises(created)
  assert.equal(created.header("Stream-Record-Next"), "3")
  advertises((await send("HEAD", path)).expect(200))
  const read = (await send("GET", `${path}?record=1`)).expect(200)
  advertises(read)
  assert.equal(read.text, "2\n3\n")
})

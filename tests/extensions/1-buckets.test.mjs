// Section 1: buckets.

import assert from "node:assert/strict"

import {
  Bucket,
  JSON_TYPE,
  Stream,
  TEXT,
  clause,
  decision,
  frames,
  inParallel,
  range,
  readBytes,
  segment,
  unique,
} from "./harness.mjs"
import { send } from "./http.mjs"

const bucket = await Bucket.create()
const absent = new Bucket(unique("absent"))

const GOOD_IDS = ["abcd", "a_-9", "----", "____", "0000", "a".repeat(64)]
const BAD_IDS = [
  "abc",
  "a",
  "Abcd",
  "ABCD",
  "ab.cd",
  "ab%20cd",
  "ab~cd",
  "%C3%A4bcd",
  "a".repeat(65),
  "ab:cd",
  "ab%2Bcd",
]

/** An id of a test's own that keeps what matters of `shape`: 64 bytes, or the characters. */
const ownId = (shape) =>
  shape.length === 64 ? unique("").replace(/-/g, "").padEnd(64, shape[0]) : `${unique("x")}${shape}`

/** The stream ids of a page. */
const ids = (answer) =>
  answer
    .expect(200)
    .json()
    .streams.map((stream) => stream.stream_id)

/** Follows a listing page by page. */
async function listAll(of, query) {
  const found = []
  for (let after = ""; ;) {
    const page = (await of.list(`${query}${after}`)).expect(200).json()
    found.push(...page.streams.map((stream) => stream.stream_id))
    if (!page.has_more) return found
    assert.ok(page.streams.length > 0, "a page that is not the last has streams")
    after = `&after=${segment(page.next_cursor)}`
  }
}

// --- 1.1

clause(
  "1.1",
  "bucket_id MUST match ^[a-z0-9_-]{4,64}$: every such id can be created, read, listed, deleted",
  async () => {
    for (const shape of GOOD_IDS) {
      const id = ownId(shape)
      const path = `/${id}`
      ;(await send("PUT", path)).expect(201)
      assert.equal((await send("GET", path)).expect(200).json().bucket_id, id)
      ;(await send("GET", `${path}/streams`)).expect(200)
      ;(await send("DELETE", path)).expect(204)
    }
  },
)

clause("1.2", "400 if bucket_id is invalid", async () => {
  for (const id of BAD_IDS) (await send("PUT", `/${id}`)).expect(400)
})

clause("1.3", "400 if bucket_id is invalid", async () => {
  for (const id of BAD_IDS) (await send("GET", `/${id}`)).expect(400)
})

clause("1.4", "400 if bucket_id is invalid", async () => {
  for (const id of BAD_IDS) (await send("GET", `/${id}/streams`)).expect(400)
})

clause("1.5", "400 if bucket_id is invalid", async () => {
  for (const id of BAD_IDS) (await send("DELETE", `/${id}`)).expect(400)
})

clause(
  "1.1",
  "stream_id is any UTF-8 string: what has to be escaped in a URL comes back from a listing as it is",
  async () => {
    const own = await Bucket.create()
    const wild = [
      "with space",
      "ünï",
      "日本語",
      "😀",
      "a?b",
      "a#b",
      "100%",
      "a+b",
      'quo"te',
      "back\\slash",
      "a.b",
      ".",
      "é\u0301",
      "a&b=c",
    ]
    for (const id of wild.filter((id) => id !== ".")) {
      const stream = await own.make(TEXT, { id, body: id })
      assert.equal(String(await readBytes(stream)), id)
    }
    const listed = ids(await own.list())
    assert.deepEqual(new Set(listed), new Set(wild.filter((id) => id !== ".")))
  },
)

clause("1.1", "the names of endpoints are stream ids like any other", async () => {
  const own = await Bucket.create()
  for (const id of ["snapshot", "bootstrap", "attrs", "append-batch", "retention"]) {
    const stream = await own.make(TEXT, { id, body: "a" })
    await stream.append("b")
    assert.equal(String(await readBytes(stream)), "ab", id)
    ;(await stream.batch(frames(["c"]))).expect(200)
    assert.equal(String(await readBytes(stream)), "abc", id)
    ;(await stream.delete()).expect(204)
  }
})

clause("1.1", "the key {bucket_id}/{stream_id} MUST NOT exceed 122 bytes: 122 do, 123 do not", async () => {
  const room = 122 - bucket.id.length - 1
  const longest = await bucket.make(TEXT, { id: "x".repeat(room), body: "fits" })
  assert.equal(String(await readBytes(longest)), "fits")
  ;(await bucket.stream(TEXT, "x".repeat(room + 1)).put()).expect(400)
})

clause("1.1", "the limit of 122 counts bytes, not characters", async () => {
  const room = 122 - bucket.id.length - 1
  const odd = room % 2 === 1 ? "x" : ""
  const id = "é".repeat(Math.floor(room / 2)) + odd
  await bucket.make(TEXT, { id })
  ;(await bucket.stream(TEXT, `${id}é`).put()).expect(400)
})

for (const [what, id] of [
  ["/", "a%2Fb"],
  ["\\0", "a%00b"],
  ["..", "a..b"],
  ["..", "%2E%2E"],
]) {
  clause("1.1", `stream_id MUST NOT contain ${what}: ${id} is refused`, async () => {
    const answer = await send("PUT", `${bucket.path}/${id}`, { headers: { "Content-Type": TEXT } })
    assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
    assert.ok(!ids(await bucket.list()).some((listed) => /\/|\0|\.\./.test(listed)), "nothing was created")
  })
}

clause("1.1", "the stream id streams is reserved for the listing", async () => {
  const own = await Bucket.create()
  const stream = new Stream(own, "streams", TEXT)
  for (const answer of [await stream.put({ body: "x" }), await stream.post("x")]) {
    assert.ok(answer.status >= 400 && answer.status < 500, `${answer}`)
  }
  assert.deepEqual(ids(await own.list()), [])
  assert.equal((await send("GET", own.path)).expect(200).json().streams, 0)
})

// --- 1.2

clause("1.2", "201 when a bucket is created, 409 when it exists", async () => {
  const own = await Bucket.create()
  ;(await send("PUT", own.path)).expect(409)
  ;(await send("GET", own.path)).expect(200)
})

clause("1.2", "of concurrent creates of one bucket exactly one is answered 201", async () => {
  const path = `/${unique("race")}`
  const answers = await inParallel(range(0, 16), () => send("PUT", path))
  const statuses = answers.map((answer) => answer.expect(201, 409).status)
  assert.equal(statuses.filter((status) => status === 201).length, 1, `${statuses}`)
  ;(await send("DELETE", path)).expect(204)
})

clause("1.2", "PUT of a stream MUST NOT implicitly create its bucket", async () => {
  ;(await absent.stream(TEXT, "s").put({ body: "x" })).expect(404)
  ;(await send("GET", absent.path)).expect(404)
})

// --- 1.3

clause("1.3", "200 with an object of at least bucket_id (string) and streams (integer)", async () => {
  const answer = (await send("GET", bucket.path)).expect(200)
  assert.equal(answer.mediaType, JSON_TYPE)
  const metadata = answer.json()
  assert.equal(metadata.bucket_id, bucket.id)
  assert.ok(Number.isInteger(metadata.streams), `${answer}`)
})

clause("1.3", "streams counts the streams of the bucket, as they come and go, and of no other", async () => {
  const [own, other] = [await Bucket.create(), await Bucket.create()]
  const count = async () => (await send("GET", own.path)).expect(200).json().streams
  assert.equal(await count(), 0)
  const streams = []
  for (const n of range(0, 9)) {
    streams.push(await own.make(n % 2 ? TEXT : JSON_TYPE))
    await other.make(TEXT)
    assert.equal(await count(), n + 1)
  }
  await streams[0].close()
  assert.equal(await count(), 9, "a closed stream is still one")
  ;(await streams[1].put()).expect(200)
  assert.equal(await count(), 9, "creating what exists creates nothing")
  for (const [gone, stream] of streams.entries()) {
    ;(await stream.delete()).expect(204)
    assert.equal(await count(), 8 - gone)
  }
})

clause("1.3", "404 if the bucket does not exist", async () => {
  ;(await send("GET", absent.path)).expect(404)
})

// --- 1.4

const listed = await Bucket.create("list")
const NAMES = ["agent-1", "agent-2", "user-1", "user-10", "user-2", "user-3", "zz"]
await inParallel([...NAMES].reverse(), (id) => listed.make(TEXT, { id, body: "some text" }))

clause("1.4", "the body has bucket_id, prefix, stream_count, streams, next_cursor, has_more", async () => {
  const answer = (await listed.list("?prefix=user-")).expect(200)
  assert.equal(answer.mediaType, JSON_TYPE)
  const page = answer.json()
  assert.equal(page.bucket_id, listed.id)
  assert.equal(page.prefix, "user-")
  assert.ok(Number.isInteger(page.stream_count), `${answer}`)
  assert.ok(Array.isArray(page.streams), `${answer}`)
  assert.ok("next_cursor" in page, `${answer}`)
  assert.equal(page.has_more, false)
})

clause(
  "1.4",
  "an entry has stream_id, status, content_type, tail_offset, created_at_ms, last_write_at_ms",
  async () => {
    const own = await Bucket.create()
    const before = Date.now()
    const stream = await own.make("text/markdown", { id: "one" })
    const entry = async () => (await own.list()).expect(200).json().streams[0]
    const created = await entry()
    assert.equal(created.stream_id, "one")
    assert.equal(created.status, "Open")
    assert.equal(created.content_type, "text/markdown")
    for (const key of ["tail_offset", "created_at_ms", "last_write_at_ms"])
      assert.ok(Number.isInteger(created[key]), key)
    // Clocks of two machines may differ; a wrong unit differs by more than an hour.
    assert.ok(Math.abs(created.created_at_ms - before) < 3_600_000, `${created.created_at_ms} is no time of now in ms`)
    await stream.append("12345")
    const written = await entry()
    assert.ok(written.tail_offset > created.tail_offset, `${written.tail_offset}`)
    assert.equal(written.created_at_ms, created.created_at_ms)
    assert.ok(written.last_write_at_ms >= created.last_write_at_ms, `${written.last_write_at_ms}`)
  },
)

clause("1.4", "prefix filters by prefix", async () => {
  assert.deepEqual(ids(await listed.list("?prefix=user-")), ["user-1", "user-10", "user-2", "user-3"])
  assert.deepEqual(ids(await listed.list("?prefix=user-1")), ["user-1", "user-10"])
  assert.deepEqual(ids(await listed.list("?prefix=none")), [])
  assert.deepEqual(ids(await listed.list("?prefix=ser-")), [], "a prefix is no part from the middle")
})

clause("1.4", "without prefix all stream ids are eligible", async () => {
  assert.deepEqual(ids(await listed.list()), NAMES)
})

clause("1.4", "streams is sorted lexicographically by stream_id", async () => {
  const own = await Bucket.create()
  const names = ["b", "a", "B", "_", "a0", "-", "10", "9", "aa", "~"]
  await inParallel(names, (id) => own.make(TEXT, { id }))
  assert.deepEqual(ids(await own.list()), [...names].sort())
})

clause("1.4", "after is exclusive, and need not be the id of a stream", async () => {
  assert.deepEqual(ids(await listed.list("?after=user-1")), ["user-10", "user-2", "user-3", "zz"])
  assert.deepEqual(ids(await listed.list("?after=user")), ["user-1", "user-10", "user-2", "user-3", "zz"])
  assert.deepEqual(ids(await listed.list("?after=zz")), [])
})

clause("1.4", "prefix, after and limit go together", async () => {
  const page = (await listed.list("?prefix=user-&after=user-1&limit=2")).expect(200)
  assert.deepEqual(ids(page), ["user-10", "user-2"])
  assert.equal(page.json().has_more, true)
  assert.equal(page.json().next_cursor, "user-2")
  const rest = (await listed.list("?prefix=user-&after=user-2&limit=2")).expect(200)
  assert.deepEqual(ids(rest), ["user-3"])
  assert.equal(rest.json().has_more, false)
})

clause("1.4", "a page that the limit fills exactly says has_more only if there is more", async () => {
  const exact = (await listed.list(`?limit=${NAMES.length}`)).expect(200).json()
  assert.equal(exact.has_more, false)
  const less = (await listed.list(`?limit=${NAMES.length - 1}`)).expect(200).json()
  assert.equal(less.has_more, true)
  assert.equal(less.next_cursor, NAMES.at(-2))
})

clause("1.4", "query values are percent-decoded", async () => {
  const own = await Bucket.create()
  await inParallel(["a b", "a&b", "a=b", "ä1", "ä2"], (id) => own.make(TEXT, { id }))
  assert.deepEqual(ids(await own.list(`?prefix=${segment("a b")}`)), ["a b"])
  assert.deepEqual(ids(await own.list(`?prefix=${segment("a&")}`)), ["a&b"])
  assert.deepEqual(ids(await own.list(`?after=${segment("ä1")}`)), ["ä2"])
})

for (const limit of ["0", "1001", "-1", "abc", "1.5", "99999999999999999999"]) {
  clause("1.4", `limit MUST be in 1..=1000: ${limit} is refused with 400`, async () => {
    ;(await listed.list(`?limit=${limit}`)).expect(400)
  })
}

clause("1.4", "limit accepts both ends, 1 and 1000", async () => {
  assert.deepEqual(ids(await listed.list("?limit=1")), NAMES.slice(0, 1))
  assert.deepEqual(ids(await listed.list("?limit=1000")), NAMES)
})

clause("1.4", "limit defaults to 1000, and pages of any size list 1,050 streams each once", async () => {
  const many = await Bucket.create("many")
  const names = range(0, 1050).map((n) => `s${String(n * 7).padStart(5, "0")}`)
  await inParallel(names, (id) => many.make(TEXT, { id }), 64)
  const page = (await many.list()).expect(200).json()
  assert.equal(page.streams.length, 1000)
  assert.equal(page.has_more, true)
  for (const limit of [1000, 333, 50]) assert.deepEqual(await listAll(many, `?limit=${limit}`), names, `limit ${limit}`)
  assert.deepEqual(
    await listAll(many, "?prefix=s00&limit=10"),
    names.filter((name) => name.startsWith("s00")),
  )
})

clause(
  "1.4",
  "a walk lists every stream that is there all the time exactly once, while others come and go",
  async () => {
    const own = await Bucket.create()
    const staying = range(0, 60).map((n) => `stay-${String(n).padStart(3, "0")}`)
    await inParallel(staying, (id) => own.make(TEXT, { id }))
    let walking = true
    const churn = (async () => {
      for (let n = 0; walking; n++) {
        const passing = await own.make(TEXT, { id: `stay-${String(n % 60).padStart(3, "0")}-passing-${n}` })
        ;(await passing.delete()).expect(204)
      }
    })()
    try {
      for (const limit of [1, 7, 25]) {
        const found = await listAll(own, `?limit=${limit}`)
        assert.deepEqual(
          found.filter((id) => !id.includes("passing")),
          staying,
          `limit ${limit}`,
        )
      }
    } finally {
      walking = false
      await churn
    }
  },
)

clause("1.4", "a deleted stream is not listed", async () => {
  const own = await Bucket.create()
  const [gone, kept] = [await own.make(TEXT, { id: "gone" }), await own.make(TEXT, { id: "kept" })]
  ;(await gone.delete()).expect(204)
  assert.deepEqual(ids(await own.list()), [kept.id])
})

clause("1.4", "404 if the bucket does not exist", async () => {
  ;(await absent.list()).expect(404)
})

decision(4, "1.4", "stream_count is the number of entries on the page, next_cursor null at the end", async () => {
  const first = (await listed.list("?limit=3")).expect(200).json()
  assert.equal(first.stream_count, 3)
  assert.equal(first.next_cursor, NAMES[2])
  const last = (await listed.list(`?after=${NAMES[2]}`)).expect(200).json()
  assert.equal(last.stream_count, 4)
  assert.equal(last.next_cursor, null)
})

decision(4, "1.4", "status of a closed stream is Closed", async () => {
  const own = await Bucket.create()
  await (await own.make(TEXT)).close()
  assert.equal((await own.list()).expect(200).json().streams[0].status, "Closed")
})

decision(4, "1.4", "stream ids sort by bytes, not by UTF-16 units", async () => {
  const own = await Bucket.create()
  const names = ["\u{1F600}", "\uFF5E", "é", "z", "Z"]
  await inParallel(names, (id) => own.make(TEXT, { id }))
  const byBytes = [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  assert.notDeepEqual([...names].sort(), byBytes, "the names tell the two orders apart")
  assert.deepEqual(ids(await own.list()), byBytes)
})

decision(9, "1.4", "tail_offset is the byte position", async () => {
  const own = await Bucket.create()
  await own.make(TEXT, { id: "text", body: "12345" })
  await own.make(JSON_TYPE, { id: "records", body: '[1, "ab"]' })
  const tails = (await own.list())
    .expect(200)
    .json()
    .streams.map((stream) => [stream.stream_id, stream.tail_offset])
  // Each record and one separator byte (decision 11).
  assert.deepEqual(tails, [
    ["records", 7],
    ["text", 5],
  ])
})

decision(2, "1.4", "an empty prefix or after is as if absent", async () => {
  assert.deepEqual(ids(await listed.list("?prefix=&after=")), NAMES)
})

decision(3, "1.4", "the listing takes GET and HEAD only; other methods are refused with 400", async () => {
  ;(await send("HEAD", `${bucket.path}/streams`)).expect(200)
  for (const method of ["PUT", "POST", "DELETE"]) (await send(method, `${bucket.path}/streams`)).expect(400)
})

decision(2, "1.1", "an escaped slash, NUL, .. and bytes that are not UTF-8 are refused with 400", async () => {
  for (const id of ["a%2Fb", "a%00b", "a..b", "%FF%FE", "%C3", "%zz"]) {
    for (const method of ["PUT", "GET", "POST", "DELETE"]) {
      const answer = await send(method, `${bucket.path}/${id}`, { headers: { "Content-Type": TEXT } })
      assert.equal(answer.status, 400, `${answer}`)
    }
  }
})

// --- 1.5

clause("1.5", "204 when deleted; then 404, and its streams' URLs are 404", async () => {
  const path = `/${unique("gone")}`
  ;(await send("PUT", path)).expect(201)
  ;(await send("DELETE", path)).expect(204)
  ;(await send("GET", path)).expect(404)
  ;(await send("GET", `${path}/streams`)).expect(404)
  ;(await send("DELETE", path)).expect(404)
  ;(await send("PUT", `${path}/s`, { headers: { "Content-Type": TEXT } })).expect(404)
})

clause("1.5", "a bucket MUST be empty before deletion: 409, and nothing of it is lost", async () => {
  const own = await Bucket.create()
  const stream = await own.make(TEXT, { body: "still " })
  ;(await send("DELETE", own.path)).expect(409)
  await stream.append("there")
  assert.equal(String(await readBytes(stream)), "still there")
  await own.make(TEXT)
  assert.equal((await send("GET", own.path)).expect(200).json().streams, 2)
})

clause("1.5", "a closed stream counts: 409", async () => {
  const own = await Bucket.create()
  await (await own.make(TEXT)).close()
  ;(await send("DELETE", own.path)).expect(409)
})

clause("1.5", "a deleted bucket's id can be created again, and begins empty", async () => {
  const path = `/${unique("again")}`
  const own = new Bucket(path.slice(1))
  ;(await send("PUT", path)).expect(201)
  const stream = await own.make(TEXT, { id: "s", body: "old" })
  ;(await stream.delete()).expect(204)
  ;(await send("DELETE", path)).expect(204)
  ;(await send("PUT", path)).expect(201)
  assert.deepEqual(ids(await own.list()), [])
  ;(await stream.head()).expect(404)
  ;(await send("DELETE", path)).expect(204)
})

clause(
  "1.5",
  "a delete that races creates loses no stream: 204 only if no create is answered 201 before it",
  async () => {
    for (const round of range(0, 10)) {
      const own = new Bucket(unique(`race${round}`))
      ;(await send("PUT", own.path)).expect(201)
      const streams = range(0, 8).map((n) => own.stream(TEXT, `s${n}`))
      const [deleted, ...creates] = await Promise.all([
        send("DELETE", own.path),
        ...streams.map((stream) => stream.put()),
      ])
      // 503: whether the bucket goes is not decided yet; a client may try again.
      for (const create of creates) create.expect(201, 404, 409, 503)
      const made = streams.filter((_, n) => creates[n].status === 201)
      if (deleted.expect(204, 409, 503).status === 204) {
        assert.equal(made.length, 0, "a stream was created in a bucket that was deleted as empty")
      } else {
        for (const stream of made) (await stream.head()).expect(200)
        await inParallel(made, (stream) => stream.delete())
        ;(await send("DELETE", own.path)).expect(204)
      }
    }
  },
)

clause("1.5", "404 if the bucket does not exist", async () => {
  ;(await send("DELETE", absent.path)).expect(404)
})

// --- 1.6

clause("1.6", "404 for every stream operation when the bucket does not exist", async () => {
  const stream = absent.stream(JSON_TYPE, "s")
  const answers = [
    await stream.put({ body: "1" }),
    await stream.post("1"),
    await stream.get(),
    await stream.get("?offset=-1&live=long-poll"),
    await stream.get("?offset=-1&live=sse"),
    await stream.head(),
    await stream.delete(),
    await stream.batch(frames(["1"])),
  ]
  for (const answer of answers) answer.expect(404)
})

clause("1.6", "404 for the endpoints of sections 2, 3 and 5 when the bucket does not exist", async () => {
  const stream = absent.stream(JSON_TYPE, "s")
  const answers = [
    await stream.publish("0000000000000000_0000000000000000", "x"),
    await stream.request("GET", "/snapshot"),
    await stream.request("GET", "/bootstrap"),
    await stream.getAttributes(),
    await stream.putAttributes({}),
    await stream.get("?record=0"),
  ]
  for (const answer of answers) answer.expect(404)
})

clause("1.6", "streams of one id in two buckets are two streams", async () => {
  const other = await Bucket.create()
  const [one, two] = [
    await bucket.make(TEXT, { id: "same", body: "one" }),
    await other.make(TEXT, { id: "same", body: "two" }),
  ]
  await one.append("!")
  assert.equal(String(await readBytes(one)), "one!")
  assert.equal(String(await readBytes(two)), "two")
  ;(await one.delete()).expect(204)
  assert.equal(String(await readBytes(two)), "two")
})

clause("1.6", "the operations of the base protocol apply: create, append, read, head, close, delete", async () => {
  const stream = bucket.stream(TEXT)
  ;(await stream.head()).expect(404)
  ;(await stream.put({ body: "a" })).expect(201)
  ;(await stream.put()).expect(200)
  await stream.append("b")
  assert.equal(String(await readBytes(stream)), "ab")
  await stream.close()
  ;(await stream.post("c")).expect(409)
  assert.equal((await stream.head()).expect(200).header("Stream-Closed"), "true")
  ;(await stream.delete()).expect(204)
  ;(await stream.get()).expect(404)
})

decision(1, "1.4", "flat streams appear in no listing, and have no suffix endpoints", async (t) => {
  const name = unique("flat")
  const path = `/v1/stream/${bucket.id}/${name}`
  t.after(() => send("DELETE", path))
  ;(await send("PUT", path, { headers: { "Content-Type": TEXT } })).expect(201)
  assert.ok(!ids(await bucket.list()).includes(name))
  ;(await send("GET", `${path}/attrs`)).expect(404)
  ;(await send("GET", `${path}/bootstrap`)).expect(404)
})

decision(5, "1", "every error body is {error: {code: UPPER_SNAKE, message}}, without white space", async () => {
  const answers = [
    await send("PUT", bucket.path),
    await send("GET", absent.path),
    await send("GET", "/abc"),
    await listed.list("?limit=0"),
    await send("DELETE", listed.path),
    await bucket.stream(TEXT).get(),
    await absent.stream(TEXT, "s").put(),
  ]
  for (const answer of answers) {
    assert.ok(answer.status >= 400, `${answer}`)
    assert.equal(answer.mediaType, JSON_TYPE, `${answer}`)
    const { error } = answer.json()
    assert.match(error.code, /^[A-Z]+(_[A-Z]+)*$/, `${answer}`)
    assert.ok(error.message.length > 0, `${answer}`)
    assert.equal(answer.text, JSON.stringify(answer.json()), `${answer}`)
  }
})

// Section 6.9: live record-aware reads.

import assert from "node:assert/strict"

import { Bucket, TEXT, clause, decision, from, jsonValues, ndjson, range, readValues, recordPage } from "./harness.mjs"
import { openEvents } from "./http.mjs"

const bucket = await Bucket.create()

const open = (t, stream, query, headers) => openEvents(t, `${stream.path}${query}`, headers)

/** Opens an SSE read that must be accepted. */
async function follow(t, stream, query, headers) {
  const events = await open(t, stream, query, headers)
  assert.equal(events.status, 200, `${events}`)
  assert.match(events.header("Content-Type"), /^text\/event-stream/)
  return events
}

/**
 * Reads pairs of data and control until `count` records have come. Every control must have the coordinates behind what
 * came before it.
 */
async function take(events, start, count) {
  const values = []
  let control
  while (values.length < count) {
    const pair = await events.nextPair()
    control = pair.control
    values.push(...jsonValues(pair.data))
    assert.equal(
      control.streamNextRecord,
      start + values.length,
      `after ${values.length} records: ${JSON.stringify(control)}`,
    )
  }
  assert.equal(values.length, count)
  return { values, control }
}

/** The control event that an SSE read at the tail begins with. */
async function atTail(events) {
  const control = await events.nextControl()
  assert.equal(control.upToDate, true, JSON.stringify(control))
  return control
}

// --- long-poll

clause("6.9", "record=r with live=long-poll returns what is there at once, like a catch-up read", async () => {
  const stream = await bucket.records(range(0, 6))
  const page = recordPage((await stream.get("?record=2&live=long-poll")).expect(200))
  assert.deepEqual([page.first, page.start, page.next, page.values], [0, 2, 6, range(2, 6)])
  assert.equal(page.answer.mediaType, "application/x-ndjson")
  assert.equal(page.offset, await stream.tail())
})

for (const query of ["record=3", "record=now", "tail_records=0"]) {
  clause("6.9", `${query} with live=long-poll waits at the tail for the next record`, async () => {
    const stream = await bucket.records(range(0, 3))
    const poll = stream.get(`?${query}&live=long-poll`)
    // So that the poll arrives before the append: an answer to a later request on another connection does not prove it,
    // but either order must give the same records unless the poll started at a later tail.
    if (query === "record=3") {
      await stream.append(["new", "newer"])
      const page = recordPage((await poll).expect(200))
      assert.deepEqual([page.start, page.next, page.values], [3, 5, ["new", "newer"]])
      return
    }
    let appended = 3
    let answer
    const done = poll.then((answered) => (answer = answered))
    while (answer === undefined) {
      await stream.append(appended++)
      await new Promise((resolve) => setImmediate(resolve))
    }
    await done
    const page = recordPage(answer.expect(200))
    assert.ok(page.start >= 3 && page.values.length > 0, `${answer}`)
    assert.deepEqual(page.values, range(page.start, page.next), "each record is its own ordinal")
  })
}

clause("6.9", "tail_records=n with live=long-poll starts n records before the tail", async () => {
  const stream = await bucket.records(range(0, 6))
  const page = recordPage((await stream.get("?tail_records=2&live=long-poll")).expect(200))
  assert.deepEqual([page.start, page.next, page.values], [4, 6, [4, 5]])
})

clause("6.9", "a long-poll returns at most max_records", async () => {
  const stream = await bucket.records(range(0, 6))
  const page = recordPage((await stream.get("?record=1&max_records=2&live=long-poll")).expect(200))
  assert.deepEqual([page.start, page.next, page.values], [1, 3, [1, 2]])
  const poll = stream.get("?record=6&max_records=2&live=long-poll")
  await stream.append(range(6, 10))
  const woken = recordPage((await poll).expect(200))
  assert.deepEqual([woken.start, woken.next, woken.values], [6, 8, [6, 7]])
})

clause("6.9", "a long-poll gives envelopes with record_view=envelope", async () => {
  const stream = await bucket.records(["a"])
  const poll = stream.get("?record=1&live=long-poll&record_view=envelope")
  await stream.append("b")
  const answer = (await poll).expect(200)
  assert.equal(answer.mediaType, "application/vnd.durable-stream-records+ndjson")
  assert.deepEqual(ndjson(answer), [{ record: 1, value: "b" }])
})

clause(
  "6.9",
  "an empty long-poll MUST have the resolved ordinal as Start and Next: at the end of a closed stream",
  async () => {
    const stream = await bucket.records(range(0, 3))
    await stream.close()
    const page = recordPage((await stream.get("?record=3&live=long-poll")).expect(204))
    assert.deepEqual([page.first, page.start, page.next], [0, 3, 3])
    assert.equal(page.answer.header("Stream-Closed"), "true")
    assert.equal(page.offset, await stream.tail())
  },
)

clause("6.9", "an empty long-poll MUST have the resolved ordinal as Start and Next: after its time", async () => {
  const stream = await bucket.records(range(0, 3))
  const page = recordPage((await stream.get("?record=now&live=long-poll")).expect(204))
  assert.deepEqual([page.first, page.start, page.next], [0, 3, 3])
  assert.equal(page.answer.header("Stream-Up-To-Date"), "true")
})

clause("6.9", "a long-poll at record > N is 400 with Stream-Record-Next", async () => {
  const stream = await bucket.records(range(0, 3))
  const answer = (await stream.get("?record=4&live=long-poll")).expect(400)
  assert.equal(answer.header("Stream-Record-Next"), "3")
})

clause(
  "6.9",
  "a client that long-polls by Stream-Record-Next, or by Stream-Next-Offset, sees every record once",
  async () => {
    const stream = await bucket.records()
    const writer = (async () => {
      for (const n of range(0, 30)) await stream.append([2 * n, 2 * n + 1])
      await stream.close()
    })()
    const byRecord = (async () => {
      const seen = []
      for (let record = 0; ;) {
        const page = recordPage((await stream.get(`?record=${record}&live=long-poll`)).expect(200, 204))
        assert.equal(page.start, record)
        seen.push(...page.values)
        record = page.next
        if (page.answer.header("Stream-Closed") === "true") return seen
      }
    })()
    const byOffset = (async () => {
      const seen = []
      for (let offset = "-1"; ;) {
        const answer = (await stream.get(from(offset, "&live=long-poll"))).expect(200, 204)
        seen.push(...jsonValues(answer.text))
        offset = answer.require("Stream-Next-Offset")
        if (answer.header("Stream-Closed") === "true") return seen
      }
    })()
    await writer
    assert.deepEqual(await byRecord, range(0, 60))
    assert.deepEqual(await byOffset, range(0, 60))
  },
)

// --- SSE

clause("6.9", "record=r with live=sse replays from record r, then follows", async (t) => {
  const stream = await bucket.records(range(0, 5))
  const events = await follow(t, stream, "?record=2&live=sse")
  assert.deepEqual((await take(events, 2, 3)).values, [2, 3, 4])
  await stream.append([5, 6])
  assert.deepEqual((await take(events, 5, 2)).values, [5, 6])
  await stream.append(7)
  assert.deepEqual((await take(events, 7, 1)).values, [7])
})

clause("6.9", "tail_records=n with live=sse replays n records, then follows", async (t) => {
  const stream = await bucket.records(range(0, 5))
  const events = await follow(t, stream, "?tail_records=2&live=sse")
  assert.deepEqual((await take(events, 3, 2)).values, [3, 4])
  await stream.append(5)
  assert.deepEqual((await take(events, 5, 1)).values, [5])
})

for (const query of ["record=now", "tail_records=0", "record=5"]) {
  clause("6.9", `${query} with live=sse starts at the tail: nothing is replayed`, async (t) => {
    const stream = await bucket.records(range(0, 5))
    const events = await follow(t, stream, `?${query}&live=sse`)
    const control = await atTail(events)
    assert.equal(control.streamFirstRecord, 0)
    assert.equal(control.streamNextRecord, 5)
    await stream.append("new")
    assert.deepEqual((await take(events, 5, 1)).values, ["new"])
  })
}

clause(
  "6.9",
  "control events MUST add streamFirstRecord and streamNextRecord to streamNextOffset and upToDate",
  async (t) => {
    const stream = await bucket.records(range(0, 3))
    const events = await follow(t, stream, "?record=0&live=sse")
    const { control } = await take(events, 0, 3)
    assert.equal(control.streamFirstRecord, 0)
    assert.equal(control.streamNextRecord, 3)
    assert.equal(control.streamNextOffset, await stream.tail())
    assert.equal(control.upToDate, true)
  },
)

clause(
  "6.9",
  "record coordinates MUST refer to the boundary after every message before the control event",
  async (t) => {
    const stream = await bucket.records()
    const value = (n) => ({ n, text: "s".repeat(700) })
    for (const start of range(0, 10)) await stream.append(range(start * 200, start * 200 + 200).map(value))
    const events = await follow(t, stream, "?record=5&live=sse")
    const { values, control } = await take(events, 5, 1995)
    assert.deepEqual(values, range(5, 2000).map(value))
    assert.equal(control.upToDate, true)
    // Each control in between named a boundary as well: ordinals and offsets say the same.
    const again = await follow(t, stream, "?record=0&live=sse")
    const { control: first } = await again.nextPair()
    assert.deepEqual(await readValues(stream, first.streamNextOffset), range(first.streamNextRecord, 2000).map(value))
  },
)

clause("6.9", "data events retain the JSON-mode representation of the base protocol", async (t) => {
  const stream = await bucket.records([{ a: 1 }, [2, 3], "four"])
  const [byRecord, byOffset] = [
    await follow(t, stream, "?record=0&live=sse"),
    await follow(t, stream, "?offset=-1&live=sse"),
  ]
  assert.equal((await byRecord.nextPair()).data, (await byOffset.nextPair()).data)
})

clause("6.9", "a large record comes whole over SSE", async (t) => {
  const stream = await bucket.records(["before"])
  const large = "L".repeat(2 * 1024 * 1024)
  await stream.append([large])
  const { values } = await take(await follow(t, stream, "?record=0&live=sse"), 0, 2)
  assert.equal(values[1].length, large.length)
})

clause("6.9", "record > N is 400 with Stream-Record-Next for SSE", async (t) => {
  const stream = await bucket.records(range(0, 3))
  const answer = await open(t, stream, "?record=4&live=sse")
  assert.equal(answer.status, 400, `${answer}`)
  assert.equal(answer.header("Stream-Record-Next"), "3")
})

clause("6.9", "the starts are exclusive for live reads, too: 400", async (t) => {
  const stream = await bucket.records(range(0, 3))
  for (const live of ["sse", "long-poll"]) {
    for (const query of [
      "?record=1&offset=-1",
      "?record=1&tail_records=1",
      "?tail_records=1&offset=now",
      "?record=1&max_bytes=5",
    ]) {
      const answer = await open(t, stream, `${query}&live=${live}`)
      assert.equal(answer.status, 400, `${query} ${live}: ${answer}`)
    }
  }
})

clause("6.9", "a closed stream ends the events with its coordinates", async (t) => {
  const stream = await bucket.records(range(0, 3))
  const events = await follow(t, stream, "?record=1&live=sse")
  await take(events, 1, 2)
  await stream.append(3, { "Stream-Closed": "true" })
  const { values, control } = await take(events, 3, 1)
  assert.deepEqual(values, [3])
  let last = control
  while (!last.streamClosed) last = await events.nextControl()
  assert.equal(last.streamNextRecord, 4)
  assert.equal(await events.next(), null, "the connection ends")
})

clause("6.9", "at the end of a closed stream one control event says so", async (t) => {
  const stream = await bucket.records(range(0, 3))
  await stream.close()
  const events = await follow(t, stream, "?record=3&live=sse")
  const control = await events.nextControl()
  assert.equal(control.streamClosed, true)
  assert.equal(control.streamNextRecord, 3)
  assert.equal(await events.next(), null)
})

clause(
  "6.9",
  "a reconnecting client MAY use the last streamNextRecord or streamNextOffset: no record is lost or repeated",
  async (t) => {
    const stream = await bucket.records()
    let appended = 0
    const grow = async () => {
      await stream.append(range(appended, appended + 3))
      appended += 3
    }
    await grow()
    const seen = []
    let control
    let query = "?record=0&live=sse"
    for (const round of range(0, 8)) {
      const events = await follow(t, stream, query)
      await grow()
      while (seen.length < appended) {
        const pair = await events.nextPair()
        seen.push(...jsonValues(pair.data))
        control = pair.control
      }
      events.close()
      assert.deepEqual(seen, range(0, appended), `round ${round}`)
      await grow()
      // An ordinal may be used where the last connection had an offset only, as the reads by records and offsets are one.
      const known = control.streamNextRecord ?? seen.length
      query = round % 2 ? `?record=${known}&live=sse` : `${from(control.streamNextOffset)}&live=sse`
    }
  },
)

// --- envelopes over SSE

clause("6.9", "with record_view=envelope each data event MUST contain exactly one envelope object", async (t) => {
  const stream = await bucket.records([{ a: 1 }, [1, [2]], "text\nmore", null])
  const events = await follow(t, stream, "?record=1&live=sse&record_view=envelope")
  const expected = [
    [1, [1, [2]]],
    [2, "text\nmore"],
    [3, null],
  ]
  for (const [record, value] of expected) {
    let event = await events.next()
    while (event.event === "control") event = await events.next()
    assert.deepEqual(JSON.parse(event.data), { record, value })
  }
  await stream.append(["x", "y"])
  for (const [record, value] of [
    [4, "x"],
    [5, "y"],
  ]) {
    let event = await events.next()
    while (event.event === "control") event = await events.next()
    assert.deepEqual(JSON.parse(event.data), { record, value })
  }
})

clause("6.9", "each envelope event is followed by a control event with the boundary behind it", async (t) => {
  const stream = await bucket.records(range(0, 4))
  const events = await follow(t, stream, "?record=0&live=sse&record_view=envelope")
  for (const n of range(0, 4)) {
    const { data, control } = await events.nextPair()
    assert.deepEqual(JSON.parse(data), { record: n, value: n })
    assert.equal(control.streamFirstRecord, 0)
    assert.equal(control.streamNextRecord, n + 1)
    assert.deepEqual(await readValues(stream, control.streamNextOffset), range(n + 1, 4))
    assert.equal(control.upToDate === true, n === 3, JSON.stringify(control))
  }
})

clause(
  "6.9",
  "envelopes MUST come with Stream-Data-Content-Type: application/vnd.durable-stream-record+json",
  async (t) => {
    const stream = await bucket.records([1])
    const events = await follow(t, stream, "?record=0&live=sse&record_view=envelope")
    assert.equal(events.header("Stream-Data-Content-Type"), "application/vnd.durable-stream-record+json")
    const plain = await follow(t, stream, "?record=0&live=sse")
    assert.notEqual(plain.header("Stream-Data-Content-Type"), "application/vnd.durable-stream-record+json")
  },
)

clause("6.9", "envelopes keep their ordinals over many appends and a reconnection", async (t) => {
  const stream = await bucket.records()
  const writer = (async () => {
    for (const n of range(0, 40)) await stream.append(range(n * 5, n * 5 + 5))
  })()
  let record = 0
  while (record < 200) {
    const events = await follow(t, stream, `?record=${record}&live=sse&record_view=envelope`)
    for (const _ of range(0, Math.min(33, 200 - record))) {
      const { data } = await events.nextPair()
      assert.deepEqual(JSON.parse(data), { record, value: record })
      record += 1
    }
    events.close()
  }
  await writer
})

clause("6.9", "many readers of all kinds see the same records", async (t) => {
  const stream = await bucket.records()
  const queries = ["?record=0", "?record=now", "?offset=-1", "?tail_records=0", "?record=0&record_view=envelope"]
  const readers = await Promise.all(
    [...queries, ...queries, ...queries].map((query) => follow(t, stream, `${query}&live=sse`)),
  )
  for (const n of range(0, 10)) await stream.append([3 * n, 3 * n + 1, 3 * n + 2])
  for (const events of readers) {
    const seen = []
    while (seen.length < 30) {
      const { data } = await events.nextPair()
      const parsed = JSON.parse(data)
      if (Array.isArray(parsed)) seen.push(...parsed)
      else if (typeof parsed === "object") seen.push(parsed.value)
      else seen.push(parsed)
    }
    assert.deepEqual(seen, range(0, 30), events.name)
  }
})

// --- what only the decisions say

decision(26, "6.9", "record-aware live reads of a stream without records: 400", async (t) => {
  const stream = await bucket.make(TEXT, { body: "text" })
  for (const query of ["?record=0", "?tail_records=1", "?record=now"]) {
    for (const live of ["sse", "long-poll"]) {
      const answer = await open(t, stream, `${query}&live=${live}`)
      assert.equal(answer.status, 400, `${answer}`)
    }
  }
})

decision(29, "6.9", "a data event of a JSON stream holds one whole JSON array", async (t) => {
  const stream = await bucket.records([1, [2]])
  const events = await follow(t, stream, "?record=0&live=sse")
  assert.deepEqual(JSON.parse((await events.nextPair()).data), [1, [2]])
  await stream.append("three")
  assert.deepEqual(JSON.parse((await events.nextPair()).data), ["three"])
})

decision(30, "6.9", "Last-Event-ID wins over record and tail_records", async (t) => {
  const stream = await bucket.records(range(0, 5))
  const { offset } = await stream.readRecords("?record=0&max_records=3")
  for (const query of ["?record=0", "?tail_records=5", "?record=now"]) {
    const events = await follow(t, stream, `${query}&live=sse`, { "Last-Event-ID": offset })
    assert.deepEqual((await take(events, 3, 2)).values, [3, 4], query)
  }
})

decision(30, "6.9", "a malformed Last-Event-ID is 400; at the end of a closed stream it is 204", async (t) => {
  const stream = await bucket.records([1])
  assert.equal((await open(t, stream, "?record=0&live=sse", { "Last-Event-ID": "nonsense" })).status, 400)
  await stream.close()
  assert.equal((await open(t, stream, "?record=0&live=sse", { "Last-Event-ID": await stream.tail() })).status, 204)
})

decision(30, "6.9", "the id of a control event is the next offset", async (t) => {
  const stream = await bucket.records([1, 2])
  const events = await follow(t, stream, "?record=0&live=sse")
  const data = await events.next()
  assert.equal(data.id, undefined)
  const control = await events.next()
  assert.equal(control.id, JSON.parse(control.data).streamNextOffset)
})

decision(25, "6.9", "deletion ends live readers at once: a long-poll is 404, SSE closes", async (t) => {
  const stream = await bucket.records([1])
  const events = await follow(t, stream, "?record=now&live=sse&record_view=envelope")
  await atTail(events)
  const poll = stream.get("?record=now&live=long-poll")
  // Whether the poll came before the deletion or after it, it is 404.
  ;(await stream.delete()).expect(204)
  ;(await poll).expect(404)
  assert.equal(await events.next(), null)
})

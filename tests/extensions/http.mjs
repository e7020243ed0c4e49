// HTTP as the tests need it: paths go out as they are written, redirects are not followed, bodies are bytes, and every
// answer knows its request, so that a failed check says what was asked.

import assert from "node:assert/strict"
import http from "node:http"
import https from "node:https"

/** Milliseconds after which an answer, or an event, that was due is given up. */
export const PATIENCE_MS = 45_000

const base = new URL(process.env.EXTENSIONS_URL ?? "http://127.0.0.1:4437")
/** What stands before `/{bucket_id}` in every path. */
export const BASE_PATH = base.pathname.replace(/\/$/, "")
export const BASE_URL = base
const client = base.protocol === "https:" ? https : http
const agent = new client.Agent({ keepAlive: true, maxSockets: 64 })

/**
 * Calls `expired` after PATIENCE_MS of this process's own time: a machine that stands still for a while does not count.
 * Returns what ends the waiting.
 */
function patience(expired) {
  let seconds = 0
  const timer = setInterval(() => {
    seconds += 1
    if (seconds * 1000 < PATIENCE_MS) return
    clearInterval(timer)
    expired(new Error(`nothing came within ${PATIENCE_MS} ms`))
  }, 1000)
  return () => clearInterval(timer)
}

/** An answer: status, headers, and the whole body. */
export class Answer {
  constructor(request, response, body) {
    Object.assign(this, { request, status: response.statusCode, headers: response.headers, body })
  }

  /** The value of a header, or undefined. */
  header(name) {
    return this.headers[name.toLowerCase()]
  }

  get text() {
    return this.body.toString("utf8")
  }

  /** The media type: no parameters, lower case. */
  get mediaType() {
    return (this.header("content-type") ?? "").split(";")[0].trim().toLowerCase()
  }

  json() {
    try {
      return JSON.parse(this.text)
    } catch {
      assert.fail(`${this}: the body is not JSON`)
    }
  }

  /** Fails unless the status is one of these. Returns the answer. */
  expect(...statuses) {
    assert.ok(statuses.includes(this.status), `expected ${statuses.join(" or ")}, got ${this}`)
    return this
  }

  /** Fails unless the status is 2xx. Returns the answer. */
  ok() {
    assert.ok(this.status >= 200 && this.status < 300, `expected success, got ${this}`)
    return this
  }

  /** Fails unless the header is there. Returns its value. */
  require(name) {
    const value = this.header(name)
    assert.notEqual(value, undefined, `${name} is missing: ${this}`)
    return value
  }

  toString() {
    const start = this.body
      .subarray(0, 300)
      .toString("latin1")
      .replace(/[^\n -~]/g, (c) => `\\x${c.charCodeAt(0).toString(16)}`)
    const body = this.body.length > 300 ? `${start}... (${this.body.length} bytes)` : start
    const telling = Object.entries(this.headers).filter(([name]) =>
      /^(stream|producer|content|etag|location)/.test(name),
    )
    return `${this.status} to ${this.request}\n  ${JSON.stringify(Object.fromEntries(telling))}\n  ${body}`
  }
}

function open(method, path, { headers = {}, body, chunked = false, agent: own = agent } = {}) {
  const request = client.request({
    protocol: base.protocol,
    hostname: base.hostname,
    port: base.port,
    method,
    path: BASE_PATH + path,
    headers: { ...headers, ...(body === undefined || chunked ? {} : { "Content-Length": Buffer.byteLength(body) }) },
    agent: own,
  })
  const answered = new Promise((resolve, reject) => {
    request.once("error", (error) => reject(new Error(`${method} ${path}: ${error.message}`, { cause: error })))
    request.once("response", resolve)
    // An error after the answer, of a request that is broken off, is nobody's failure.
    request.on("error", () => {})
  })
  const stopWaiting = patience((error) => request.destroy(error))
  request.once("close", stopWaiting)
  return { request, answered, stopWaiting, name: `${method} ${path} ${JSON.stringify(headers)}` }
}

async function bodyOf(response) {
  const chunks = []
  for await (const chunk of response) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/**
 * One request and its whole answer. `path` starts with a slash, below the base URL, and is sent as it is. With `chunked`
 * the body goes out in two chunks and without its length.
 * @returns {Promise<Answer>}
 */
export async function send(method, path, options = {}) {
  const { request, answered, name } = open(method, path, options)
  if (options.chunked) {
    const bytes = Buffer.from(options.body)
    request.write(bytes.subarray(0, bytes.length >> 1))
    request.end(bytes.subarray(bytes.length >> 1))
  } else {
    request.end(options.body)
  }
  let response
  try {
    response = await answered
  } catch (error) {
    // A server may close an idle connection at the moment in which it is used again: that request never arrived.
    if (request.reusedSocket && error.cause?.code === "ECONNRESET") return send(method, path, options)
    throw error
  }
  return new Answer(name, response, await bodyOf(response))
}

/**
 * A request whose body stays unfinished until `finish(bytes)`: the head and `firstBytes` have left when this resolves.
 */
export async function sendSlowly(method, path, { headers = {}, length, firstBytes }) {
  const options = { headers: { ...headers, "Content-Length": String(length) }, agent: new client.Agent() }
  const { request, answered, name } = open(method, path, options)
  const answer = answered.then(async (response) => new Answer(name, response, await bodyOf(response)))
  answer.catch(() => {})
  await new Promise((resolve, reject) => {
    request.once("error", reject)
    request.write(firstBytes, resolve)
  })
  return {
    answer,
    finish(bytes) {
      request.end(bytes)
      return answer
    },
    abandon: () => request.destroy(),
  }
}

/**
 * A request whose answer is not read before `finish()`, so that a large body waits in the server. The head has arrived
 * when this resolves. `finish` rejects if the server broke the answer off.
 */
export async function receiveSlowly(method, path) {
  const { request, answered, name } = open(method, path, { agent: new client.Agent() })
  request.end()
  const response = await answered
  const finish = async () => new Answer(name, response, await bodyOf(response))
  return { status: response.statusCode, finish, abandon: () => request.destroy() }
}

/** The events of a text/event-stream, as the standard parses them; comments and `retry` are left out. */
export function parseEvents(text) {
  const events = []
  let event = { event: "message", lines: [], fields: 0 }
  for (const line of text.split(/\r\n|\n|\r/)) {
    if (line === "") {
      if (event.fields > 0) events.push({ event: event.event, data: event.lines.join("\n"), id: event.id })
      event = { event: "message", lines: [], fields: 0 }
      continue
    }
    if (line.startsWith(":")) continue
    const colon = line.indexOf(":")
    const name = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "")
    if (name === "event") event.event = value
    else if (name === "data") event.lines.push(value)
    else if (name === "id") event.id = value
    else continue
    event.fields += 1
  }
  return events
}

/** Behind the last `end` in the text; 0 if there is none. */
function endOfLast(text, end) {
  const at = text.lastIndexOf(end)
  return at < 0 ? 0 : at + end.length
}

/** A server-sent event stream that is being read. */
export class EventStream {
  #ended = false
  #failure
  #events = []
  #pending = ""
  #wake = () => {}

  constructor(name, request, response) {
    Object.assign(this, { name, request, response, status: response.statusCode, headers: response.headers })
    const decoder = new TextDecoder()
    response.on("data", (chunk) => {
      this.#pending += decoder.decode(chunk, { stream: true })
      // Whole events only: all up to the last empty line.
      const length = Math.max(...["\n\n", "\r\r", "\r\n\r\n"].map((end) => endOfLast(this.#pending, end)))
      if (length === 0) return
      this.#events.push(...parseEvents(this.#pending.slice(0, length)))
      this.#pending = this.#pending.slice(length)
      this.#wake()
    })
    const end = (failure) => {
      this.#ended = true
      this.#failure ??= failure
      this.#wake()
    }
    response.once("end", () => end())
    response.once("error", end)
    response.once("close", () => end())
  }

  header(name) {
    return this.headers[name.toLowerCase()]
  }

  /** The next event, or null when the server has ended the stream. */
  async next() {
    let late
    const stopWaiting = patience((error) => {
      late = error
      this.#wake()
    })
    try {
      while (this.#events.length === 0) {
        if (late ?? this.#failure) throw new Error(`${this.name}: ${(late ?? this.#failure).message}`)
        if (this.#ended) return null
        await new Promise((resolve) => (this.#wake = resolve))
      }
    } finally {
      stopWaiting()
    }
    return this.#events.shift()
  }

  /** The next data event, and the control event that must follow it, parsed. Controls before the data are passed over. */
  async nextPair() {
    let data = await this.next()
    while (data?.event === "control") data = await this.next()
    assert.equal(data?.event, "data", `${this.name}: expected a data event, got ${JSON.stringify(data)}`)
    return { data: data.data, control: await this.nextControl() }
  }

  /** The next event, which must be a control event, parsed. */
  async nextControl() {
    const control = await this.next()
    assert.equal(control?.event, "control", `${this.name}: expected a control event, got ${JSON.stringify(control)}`)
    return JSON.parse(control.data)
  }

  close() {
    this.request.destroy()
  }
}

/**
 * Opens an event stream; it is closed when the test `t` ends.
 * @returns {Promise<EventStream | Answer>} an Answer if it is not 200
 */
export async function openEvents(t, path, headers = {}) {
  const own = new client.Agent()
  const { request, answered, stopWaiting, name } = open("GET", path, {
    headers: { Accept: "text/event-stream", ...headers },
    agent: own,
  })
  request.end()
  const response = await answered
  if (response.statusCode !== 200) return new Answer(name, response, await bodyOf(response))
  stopWaiting()
  const events = new EventStream(name, request, response)
  t.after(() => events.close())
  return events
}

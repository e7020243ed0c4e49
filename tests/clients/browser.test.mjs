// A real browser's EventSource, on a page of another origin, follows a stream across reconnects. Between the browser and
// the server stands a relay that writes down the request heads and can cut the connection.

import assert from "node:assert/strict"
import { createServer } from "node:http"
import net from "node:net"
import { after, before, test } from "node:test"

import { chromium } from "playwright-core"

import { startServer } from "../support/server.mjs"
import { freshName, prepareSurfaces } from "./surfaces.mjs"

/** How long a connection lives in the test where the server itself ends it. */
const SSE_MAX_MS = 1_000

/** A relay of bytes to the server at `url`. */
async function startRelay(url) {
  const { hostname, port } = new URL(url)
  const sockets = new Set()
  const heads = []
  const listener = net.createServer((browser) => {
    const server = net.connect(Number(port), hostname)
    let head = ""
    for (const socket of [browser, server]) {
      sockets.add(socket)
      socket.once("close", () => {
        sockets.delete(socket)
        browser.destroy()
        server.destroy()
      })
      socket.on("error", () => {})
    }
    browser.on("data", (bytes) => {
      head += bytes.toString("latin1")
      const end = head.indexOf("\r\n\r\n")
      if (end < 0) return
      heads.push(head.slice(0, end))
      head = head.slice(end + 4)
    })
    browser.pipe(server)
    server.pipe(browser)
  })
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve))
  return {
    url: `http://127.0.0.1:${listener.address().port}`,
    /** Values of a header in the GET requests so far, null where it is absent. */
    values(name) {
      const gets = heads.filter((head) => head.startsWith("GET "))
      return gets.map((head) => new RegExp(`^${name}: (.*)$`, "im").exec(head)?.[1].trim() ?? null)
    },
    cut() {
      for (const socket of sockets) socket.destroy()
    },
    async stop() {
      this.cut()
      await new Promise((resolve) => listener.close(resolve))
    },
  }
}

// An empty page of an origin that is not the server's: every request of it is subject to CORS.
const pages = createServer((_, answer) => answer.writeHead(200, { "content-type": "text/html" }).end("<title>page</title>"))
let browser
before(async () => {
  await new Promise((resolve) => pages.listen(0, "127.0.0.1", resolve))
  browser = await chromium.launch({
    executablePath: process.env.THALWEG_CHROMIUM,
    // CI runs as root, where Chromium's sandbox refuses to start.
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  })
})
after(async () => {
  await browser?.close()
  pages.close()
})

/** Opens a page that follows `url`, with everything that it hears at hand. */
async function follow(url) {
  const page = await browser.newPage()
  await page.goto(`http://127.0.0.1:${pages.address().port}/`)
  await page.evaluate((streamUrl) => {
    globalThis.heard = { data: [], control: [], opened: 0, errors: 0 }
    globalThis.source = new EventSource(streamUrl)
    source.addEventListener("open", () => heard.opened++)
    source.addEventListener("error", () => heard.errors++)
    source.addEventListener("data", (event) => heard.data.push(event.data))
    source.addEventListener("control", (event) => {
      heard.control.push({ ...JSON.parse(event.data), lastEventId: event.lastEventId })
    })
  }, url)
  return {
    heard: () => page.evaluate(() => heard),
    until: (condition, argument) => page.waitForFunction(condition, argument, { timeout: 60_000 }),
    close: () => page.close(),
  }
}

async function append(url, text, headers = {}) {
  const answer = await fetch(url, { method: "POST", body: text, headers: { "content-type": "text/plain", ...headers } })
  assert.ok(answer.ok, `${answer.status} ${await answer.text()}`)
  return answer.headers.get("stream-next-offset")
}

async function create(url) {
  const answer = await fetch(url, { method: "PUT", headers: { "content-type": "text/plain" } })
  assert.equal(answer.status, 201)
}

test("EventSource follows across a cut connection and stops at the end of the stream", async () => {
  const server = await startServer(["--shards", "2"])
  const relay = await startRelay(server.url)
  try {
    for (const urlOf of Object.values(await prepareSurfaces(relay.url))) {
      const url = urlOf(freshName("browser"))
      await create(url)
      const headsBefore = relay.values("Last-Event-ID").length
      await append(url, "one")
      const page = await follow(`${url}?offset=-1&live=sse`)
      await page.until(() => heard.data.join("") === "one" && heard.control.at(-1)?.upToDate)
      const second = await append(url, "two")
      await page.until((next) => heard.control.at(-1)?.streamNextOffset === next, second)

      relay.cut()
      await page.until(() => heard.errors > 0)
      await append(url, "three")
      await page.until(() => heard.data.join("") === "onetwothree" && heard.opened === 2)

      await append(url, "end", { "stream-closed": "true" })
      // 2 is EventSource.CLOSED: the answer to the last reconnect told the browser to give up.
      await page.until(() => source.readyState === 2)
      const heard = await page.heard()
      // Nothing is heard twice although the page's URL still says offset=-1.
      assert.deepEqual(heard.data, ["one", "two", "three", "end"])
      for (const control of heard.control) assert.equal(control.lastEventId, control.streamNextOffset)
      assert.equal(heard.control.at(-1).streamClosed, true)
      assert.deepEqual(relay.values("Last-Event-ID").slice(headsBefore), [
        null,
        second,
        heard.control.at(-1).streamNextOffset,
      ])
      await page.close()
    }
  } finally {
    await relay.stop()
    await server.stop()
  }
})

test("EventSource follows across connections that the server ends", async () => {
  const server = await startServer(["--shards", "1", "--sse-max-ms", String(SSE_MAX_MS)])
  const relay = await startRelay(server.url)
  try {
    const url = (await prepareSurfaces(relay.url)).flat(freshName("ended"))
    await create(url)
    const page = await follow(`${url}?offset=-1&live=sse`)
    const sent = []
    for (let round = 1; round <= 3; round++) {
      await page.until((opened) => heard.opened >= opened, round)
      for (const half of ["a", "b"]) {
        sent.push(`${round}${half} `)
        await append(url, sent.at(-1))
      }
    }
    await page.until((text) => heard.data.join("").length >= text.length, sent.join(""))
    const heard = await page.heard()
    assert.equal(heard.data.join(""), sent.join(""))
    assert.ok(heard.opened >= 3, `opened ${heard.opened} times`)
    assert.ok(relay.values("Last-Event-ID").slice(1).every((id) => id !== null))
    await page.close()
  } finally {
    await relay.stop()
    await server.stop()
  }
})

// What the page asks the server for. A failure is a `Problem`, whose message is one line for people.

export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const UNREACHABLE = "The server cannot be reached. Your text and your questions are still here: try again.";
const CUT_OFF = "The connection ended before all questions were made. Those that came are kept.";
const OTHERWISE = {
  401: "The server wants an API key.",
  413: "The text is too long for this server: ask about a part of it.",
  429: "Too many requests.",
  503: "The server is busy.",
};

export const sentence = line => line && line[0].toUpperCase() + line.slice(1) + (/[.!?]$/.test(line) ? "" : ".");

const address = route => new URL(`../${route}`, import.meta.url);

async function post(route, body, { key = "", signal } = {}) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (typeof body === "string") headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address(route), { method: "POST", headers, body, signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0, UNREACHABLE);
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Not JSON: a proxy's page, of which only the status is used.
  }
  return problemFrom(body, response.status, response.headers.get("Retry-After"));
}

function problemFrom(body, status, wait = null) {
  const told = [body?.detail, body?.title].find(text => typeof text === "string" && text);
  const line = sentence((told ?? OTHERWISE[status] ?? `The server answered with an error (${status})`).trim());
  const seconds = /^\d+$/.test(wait ?? "") ? Number(wait) : Math.ceil((Date.parse(wait ?? "") - Date.now()) / 1000);
  if (!(seconds > 0)) return new Problem(status, line);
  return new Problem(status, `${line} Try again in ${seconds} ${seconds === 1 ? "second" : "seconds"}.`);
}

// Yields {pairs, reason} as they are made.
export async function* askedPairs(request, options) {
  const response = await post("v1/pairs/stream", JSON.stringify(request), options);
  for await (const { event, data } of eventsOf(response.body)) {
    if (event === "error") throw problemFrom(data, data.status ?? 500);
    if (event === "pairs") yield data;
    if (event === "done") {
      yield { ...data, pairs: [] };
      return;
    }
  }
  throw new Problem(0, CUT_OFF);
}

// Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) whose data are JSON.
async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  let event = "message";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await readFrom(reader);
      if (done) return;
      const lines = (left + value).split(/\r?\n/);
      left = lines.pop();
      for (const line of lines) {
        if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
        else if (line === "") {
          if (data.length) yield { event, data: JSON.parse(data.join("\n")) };
          [event, data] = ["message", []];
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function readFrom(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0, CUT_OFF);
  }
}

// {tokens: [{start, end, weight}], metric}, with places in code points.
export async function explained(request, options) {
  return (await post("v1/explain", JSON.stringify(request), options)).json();
}

// The file that the server makes of pairs: {name, blob}.
export async function exported(form, options) {
  const response = await post("page/export", form, options);
  const name = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "")?.[1] ?? "questions";
  return { name, blob: await response.blob() };
}

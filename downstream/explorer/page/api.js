// Requests to the service of this page. A token in the address (#token=...) is sent as a header.

const TOKEN = "bilm-token";

export function adoptToken() {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (match) {
    sessionStorage.setItem(TOKEN, decodeURIComponent(match[1]));
    history.replaceState(null, "", location.pathname);
  }
}

async function send(path, body, accept) {
  const headers = { Accept: accept };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("the service does not respond; check that `bilm explore` is running");
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.detail ?? `the service answered with status ${response.status}`);
  }
  return response;
}

export async function get(path) {
  return (await send(path, undefined, "application/json")).json();
}

export async function post(path, body) {
  return (await send(path, body, "application/json")).json();
}

// A sentence of a request: the service splits raw text only if the model has a tokenizer.
export function sentenceOf(model, text) {
  return model.has_tokenizer ? text : text.split(/\s+/).filter((word) => word);
}

// The words and vectors (layers, words, dim) of sentences, from a safetensors file.
export async function embed(sentences) {
  const body = { sentences, layers: "all" };
  const response = await send("/v1/embed", body, "application/octet-stream");
  const data = await response.arrayBuffer();
  const size = Number(new DataView(data).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 8, size)));
  const words = JSON.parse(header.__metadata__.words);
  return words.map((own, i) => {
    const { shape, data_offsets: [start, end] } = header[String(i)];
    const bytes = data.slice(8 + size + start, 8 + size + end);
    return { words: own, shape, values: new Float32Array(bytes) };
  });
}

// The status line shows whether something is computed, and the last error. Of the actions of one
// reporter, only the last one counts: `isLast` is false as soon as another one has started.
let pending = 0;
let problem = "";

function showStatus() {
  const status = document.getElementById("status");
  status.className = problem ? "error" : "";
  status.textContent = problem || (pending ? "Computing …" : "");
}

export function reporter() {
  let last = 0;
  return async (action) => {
    const number = ++last;
    const isLast = () => number === last;
    pending += 1;
    problem = "";
    showStatus();
    try {
      await action(isLast);
    } catch (error) {
      if (isLast()) problem = error.message;
    } finally {
      pending -= 1;
      showStatus();
    }
  };
}

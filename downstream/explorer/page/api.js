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

// Show the progress and the errors of an action in the status line. Only the last action counts.
let actions = 0;

export async function report(action) {
  const status = document.getElementById("status");
  const number = ++actions;
  status.className = "";
  status.textContent = "Computing …";
  try {
    await action(() => number === actions);
    if (number === actions) status.textContent = "";
  } catch (error) {
    if (number !== actions) return;
    status.className = "error";
    status.textContent = error.message;
  }
}

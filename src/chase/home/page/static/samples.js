// Samples as the browser shows them, fetched ahead and kept in memory only.

const MOST = 160;
const held = new Map();

export function load(sample) {
  let found = held.get(sample);
  if (!found) {
    found = fetchSample(sample);
    held.set(sample, found);
    found.catch(() => held.delete(sample));
  }
  if (held.size > MOST) {
    const [oldest, old] = held.entries().next().value;
    held.delete(oldest);
    old.then((s) => s.url && URL.revokeObjectURL(s.url)).catch(() => {});
  }
  return found;
}

async function fetchSample(sample) {
  const response = await fetch(`/api/samples/${sample}`, { credentials: "same-origin", cache: "no-store" });
  if (!response.ok) throw new Error(`sample ${sample} cannot be shown`);
  if ((response.headers.get("content-type") ?? "").startsWith("text/")) return { text: await response.text() };
  const url = URL.createObjectURL(await response.blob());
  const picture = new Image();
  picture.src = url;
  await picture.decode().catch(() => { throw new Error(`sample ${sample} is no picture that can be shown`); });
  return { url, width: picture.naturalWidth, height: picture.naturalHeight };
}

export function paint(img, sample, alt) {
  img.src = sample.url;
  img.alt = alt;
  img.classList.toggle("crisp", Math.max(sample.width, sample.height) <= 256);
}

// Samples as the browser shows them, fetched ahead and kept in memory only.
//
// A sample is { text, seen }, or { url, width, height, seen, range } for a picture that was decoded. `seen` is the
// server's receipt that these very bytes were sent; an answer must carry it. Unreadable: the sample itself is broken.

const MOST = 160;
export const HOVER = 4000; // characters of a text that are shown on hover
const held = new Map();

export class Unreadable extends Error {}

export function load(sample, low = null, high = null) {
  const wanted = low === null ? `${sample}` : `${sample}?low=${low}&high=${high}`;
  let found = held.get(wanted);
  if (!found) {
    found = fetchSample(wanted, sample);
    held.set(wanted, found);
    found.catch(() => held.delete(wanted));
  }
  if (held.size > MOST) {
    const [oldest, old] = held.entries().next().value;
    held.delete(oldest);
    old.then((s) => s.url && URL.revokeObjectURL(s.url)).catch(() => {});
  }
  return found;
}

async function fetchSample(wanted, sample) {
  const response = await fetch(`/api/samples/${wanted}`, { credentials: "same-origin", cache: "no-store" });
  if (response.status === 422) throw new Unreadable((await response.json()).error);
  if (!response.ok) throw new Error(`sample ${sample} cannot be loaded`);
  const seen = response.headers.get("x-chase-seen") ?? "";
  if ((response.headers.get("content-type") ?? "").startsWith("text/")) return { text: await response.text(), seen };
  const blob = await response.blob();
  const url = URL.createObjectURL(blob);
  const picture = new Image();
  picture.src = url;
  try {
    await picture.decode();
  } catch {
    URL.revokeObjectURL(url);
    throw new Unreadable(`sample ${sample} cannot be shown as a picture`);
  }
  const range = (response.headers.get("x-chase-range") ?? "").split(" ").map(Number);
  return {
    url, seen, width: picture.naturalWidth, height: picture.naturalHeight,
    range: range.length === 4 && range.every(Number.isFinite) ? range : null,
  };
}

export function paint(img, sample, alt) {
  img.src = sample.url;
  img.alt = alt;
  img.classList.toggle("crisp", Math.max(sample.width, sample.height) <= 256);
}

// What a small field shows of a text: its beginning, or its end where the class is what comes next.
export function snippet(text, fromEnd, longest = 220) {
  if (text.length <= longest) return text;
  return fromEnd ? `…${text.slice(-longest)}` : `${text.slice(0, longest)}…`;
}

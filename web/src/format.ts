// Numbers as people read them.

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-GB");
}

/** 8192 -> "8K", 1048576 -> "1M": sizes of contexts. */
export function contextSize(tokens: number): string {
  if (tokens >= 1 << 20 && tokens % (1 << 20) === 0) return `${tokens >> 20}M`;
  return tokens >= 1024 && tokens % 1024 === 0 ? `${tokens >> 10}K` : count(tokens);
}

/** 12800 -> "12.8K": for narrow places. */
export function compact(value: number): string {
  return value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 3 });
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value: number): string {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function rate(value: number): string {
  return value < 100 ? value.toFixed(1) : count(value);
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

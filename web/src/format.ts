// Numbers as people read them.

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-GB");
}

/** 8192 -> "8K", 1048576 -> "1M": sizes of contexts. */
export function contextSize(tokens: number): string {
  if (tokens >= 1 << 20 && tokens % (1 << 20) === 0) return `${tokens >> 20}M`;
  return tokens >= 1024 && tokens % 1024 === 0 ? `${tokens >> 10}K` : count(tokens);
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

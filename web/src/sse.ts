// Server-sent events out of text that arrives in arbitrary pieces (WHATWG HTML, section 9.2.6).

export interface ServerEvent {
  event: string; // "message" when the server names none
  data: string;
}

export class SseParser {
  private line = "";
  private afterCarriageReturn = false;
  private event = "";
  private data: string[] = [];
  private started = false;

  /** The events that `text` completes. What is unfinished waits for more. */
  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    if (!this.started && text.length > 0) {
      this.started = true;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    let begin = 0;
    for (let i = 0; i < text.length; ++i) {
      const code = text.charCodeAt(i);
      const wasCarriageReturn = this.afterCarriageReturn;
      this.afterCarriageReturn = code === 13;
      if (code !== 10 && code !== 13) continue;
      if (code === 10 && wasCarriageReturn) {
        begin = i + 1; // the second half of a CR LF
        continue;
      }
      this.endLine(this.line + text.slice(begin, i), events);
      this.line = "";
      begin = i + 1;
    }
    this.line += text.slice(begin);
    return events;
  }

  private endLine(line: string, events: ServerEvent[]): void {
    if (line === "") {
      if (this.data.length > 0) events.push({ event: this.event || "message", data: this.data.join("\n") });
      this.event = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment: the server shows that it lives
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.data.push(value);
    if (field === "event") this.event = value;
  }
}

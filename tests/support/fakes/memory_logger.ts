/** A log that tests can read. */
import type { LogFields, Logger } from "../../../lib/log/logger.ts";

/** One line of a {@linkcode MemoryLogger}. */
export interface MemoryLogLine {
  readonly level: "error" | "warn" | "info" | "verbose";
  readonly message: string;
  readonly fields: LogFields;
}

/** A {@linkcode Logger} that keeps its lines; those of {@linkcode with} go to the same list. */
export class MemoryLogger implements Logger {
  readonly lines: MemoryLogLine[];
  readonly #fields: LogFields;

  constructor(fields: LogFields = {}, lines: MemoryLogLine[] = []) {
    this.#fields = fields;
    this.lines = lines;
  }

  error(message: string, fields: LogFields = {}): void {
    this.#keep("error", message, fields);
  }

  warn(message: string, fields: LogFields = {}): void {
    this.#keep("warn", message, fields);
  }

  info(message: string, fields: LogFields = {}): void {
    this.#keep("info", message, fields);
  }

  verbose(_level: number, message: string, fields: LogFields = {}): void {
    this.#keep("verbose", message, fields);
  }

  enabled(): boolean {
    return true;
  }

  with(fields: LogFields): MemoryLogger {
    return new MemoryLogger({ ...this.#fields, ...fields }, this.lines);
  }

  #keep(level: MemoryLogLine["level"], message: string, fields: LogFields): void {
    this.lines.push({ level, message, fields: { ...this.#fields, ...fields } });
  }
}

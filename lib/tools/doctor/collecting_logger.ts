import type { LogFields, Logger } from "../../log/logger.ts";

export interface CollectedLine {
  readonly level: "error" | "warn" | "info";
  readonly message: string;
  readonly fields: LogFields;
}

/** Collects errors, warnings and infos, and prints nothing. */
export class CollectingLogger implements Logger {
  readonly lines: CollectedLine[];
  readonly #fields: LogFields;

  constructor(fields: LogFields = {}, lines: CollectedLine[] = []) {
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

  verbose(): void {}

  enabled(): boolean {
    return false;
  }

  with(fields: LogFields): CollectingLogger {
    return new CollectingLogger({ ...this.#fields, ...fields }, this.lines);
  }

  #keep(level: CollectedLine["level"], message: string, fields: LogFields): void {
    this.lines.push({ level, message, fields: { ...this.#fields, ...fields } });
  }
}

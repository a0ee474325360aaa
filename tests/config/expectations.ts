/** Parts of the configuration that the cases of this folder check. */
import type { LoadedConfiguration } from "../../lib/config/load.ts";

/** The value of a field, e.g. `iptables.syncPeriod`. Fails when there is no such field. */
export function fieldOf(value: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((outer, step) => {
    const fields = Object(outer) as Record<string, unknown>;
    if (!(step in fields)) throw new RangeError(`Cannot find ${path}: there is no ${step}`);
    return fields[step];
  }, value);
}

/** Warnings as text: the values of their fields, then the message. */
export function warningTexts({ notices }: LoadedConfiguration): readonly string[] {
  return notices.filter(({ level }) => level === "warn")
    .map(({ message, fields }) => `${Object.values(fields).join(" ")} ${message}`);
}

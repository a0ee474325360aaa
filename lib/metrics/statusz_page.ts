import type { ZPage } from "./z_page.ts";

/** The content of the page. Times are milliseconds since 1970. */
export interface StatuszOptions {
  readonly startedAt: number;
  readonly now: number;
  /** Version of kube-relay, with the compatible release of kube-proxy. */
  readonly version: string;
  /** Kubernetes release, e.g. `1.36`. */
  readonly release: string;
  /** The runtime, e.g. `deno 2.9.0`, in place of upstream's version of Go. */
  readonly runtime: string;
  /** Paths of the port. */
  readonly paths: readonly string[];
}

/** `/statusz`: the build and its start time (KEP-4827). */
export function statuszPage(options: StatuszOptions): ZPage {
  const { startedAt, now, version, release, runtime, paths } = options;
  const uptimeSeconds = Math.max(0, Math.floor((now - startedAt) / 1000));
  // Without fractions of a second, as metav1.Time.
  const startTime = new Date(startedAt).toISOString().replace(/\.\d+Z$/, "Z");
  return {
    kind: "Statusz",
    fields: {
      startTime,
      uptimeSeconds,
      goVersion: runtime,
      binaryVersion: version,
      emulationVersion: release,
      paths,
    },
    lines: [
      `Started: ${startTime}`,
      `Up: ${durationText(uptimeSeconds)}`,
      `Runtime: ${runtime}`,
      `Binary version: ${version}`,
      `Emulation version: ${release}`,
      `Paths: ${paths.join(" ")}`,
    ],
  };
}

function durationText(seconds: number): string {
  const pad = (value: number) => String(value).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return `${hours} hr ${pad(minutes)} min ${pad(seconds % 60)} sec`;
}

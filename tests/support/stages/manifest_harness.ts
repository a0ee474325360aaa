/** A manifest source on files in memory and a clock that stands still. */
import { formatProblem } from "../../../lib/kube/manifests/manifest_problem.ts";
import {
  FileManifestSource,
  type ManifestFileSystem,
} from "../../../lib/kube/manifests/manifests.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { FakeClock } from "../fakes/fake_clock.ts";
import { FakeManifestFiles } from "../fakes/fake_manifest_files.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { RecordingInformers } from "../fakes/recording_informers.ts";

/** A running source and its receivers. */
export class ManifestHarness implements AsyncDisposable {
  readonly informers = new RecordingInformers();
  readonly logger = new MemoryLogger();
  readonly source: FileManifestSource;
  readonly #controller = new AbortController();
  readonly #running: Promise<void>;

  constructor(clock: Clock, fileSystem: ManifestFileSystem | undefined, ...paths: string[]) {
    this.source = new FileManifestSource(
      { clock, logger: this.logger, ...(fileSystem && { fileSystem }) },
      { paths, informers: this.informers.set },
    );
    this.#running = this.source.run(this.#controller.signal);
  }

  /** The problems of all files, as text. */
  get problems(): readonly string[] {
    return this.source.status().flatMap(({ problems }) => problems.map(formatProblem));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#controller.abort();
    await this.#running;
  }
}

/** A Service without anything behind it, as YAML. */
export function serviceYaml(name: string, clusterIp: string): string {
  return `apiVersion: v1\nkind: Service\nmetadata:\n  name: ${name}\n` +
    `spec:\n  clusterIP: ${clusterIp}\n  ports:\n    - port: 80\n`;
}

/** A source that has read its first files. */
export interface StartedManifests {
  readonly clock: FakeClock;
  readonly files: FakeManifestFiles;
  readonly harness: ManifestHarness;
}

/** Runs a test on folder `m` with these files in it, once they have been read. */
export async function withManifests(
  contents: Readonly<Record<string, string>>,
  test: (started: StartedManifests) => Promise<void>,
  paths = ["m"],
): Promise<void> {
  const clock = new FakeClock();
  const files = new FakeManifestFiles(".", "m");
  for (const [path, text] of Object.entries(contents)) files.write(path, text);
  await using harness = new ManifestHarness(clock, files, ...paths);
  await settledUntil(clock, () => harness.informers.services.synced);
  await test({ clock, files, harness });
}

/** Lets promises settle, without time passing, until something is true. */
export async function settledUntil(clock: FakeClock, isTrue: () => boolean): Promise<void> {
  for (let turn = 0; turn < 1000; turn++) {
    if (isTrue()) return;
    await clock.advance(0);
  }
  throw new Error("did not come true");
}

/** The time until a change is seen, has settled and is read. */
export const SEEN_MS = 1_100;

const STEP_MS = 50;

/** Lets a change be seen, read and published. */
export async function letPass(
  { clock }: Pick<StartedManifests, "clock">,
  ms: number,
): Promise<void> {
  const until = clock.now() + ms;
  // In steps, so that running work is not late.
  while (clock.now() < until) {
    await clock.advance(Math.min(STEP_MS, until - clock.now()));
    for (let turn = 0; turn < 10; turn++) await clock.advance(0);
  }
}

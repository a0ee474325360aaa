import type { Logger } from "../../lib/log/logger.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import type { Clock, Timer } from "../../lib/os/clock.ts";
import type { DrainingServer } from "./drain_list.ts";
import {
  EMPTY_SERVER_RECORD,
  formatServerRecord,
  NO_NODE_PORTS,
  type NodePortServers,
} from "./server_record.ts";
import { loadServerRecord, type ServerRecordFile } from "./server_record_file.ts";
import type { RealServerKey, ServerKey } from "./virtual_server.ts";

interface ServerRecordWriterDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly file: ServerRecordFile;
}

/** Changes within this time are written together. */
const SAVE_DELAY_MS = 1_000;
const RETRY_MS = 60_000;
/** A larger change of the clock means that it was set, not only adjusted. */
const CLOCK_STEP_MS = 1_000;

/** The record of one family. Never throws: serving does not depend on the record. */
export class ServerRecordWriter {
  readonly #dependencies: ServerRecordWriterDependencies;
  /** Times of the clock of this process. */
  readonly #beginnings = new Map<string, number>();
  #drains: () => readonly DrainingServer[] = () => [];
  #nodePorts: () => NodePortServers = () => NO_NODE_PORTS;
  #earlierNodePorts = NO_NODE_PORTS;
  #savedText = formatServerRecord(EMPTY_SERVER_RECORD);
  /** The difference between the time of day and this process's clock at the last save. */
  #savedOffset: number | undefined;
  #isDirty = false;
  #isFailureLogged = false;
  #isClosed = false;
  #timer: Timer | undefined;
  #saving: Promise<void> | undefined;

  constructor(dependencies: ServerRecordWriterDependencies) {
    this.#dependencies = dependencies;
  }

  /** Node ports and addresses that an earlier run served, until {@linkcode settled}. */
  get earlierNodePorts(): NodePortServers {
    return this.#earlierNodePorts;
  }

  /** Reads the record of an earlier run. */
  async open(): Promise<void> {
    const { clock, file, logger } = this.#dependencies;
    try {
      const record = await loadServerRecord(file);
      const [now, wallNow] = [clock.now(), clock.wallNow()];
      for (const { server, real, sinceMs } of record.drains) {
        // If the clock was set back, the recorded start is in the future; then draining starts now.
        this.#beginnings.set(`${server} ${real}`, now - Math.max(0, wallNow - sinceMs));
      }
      this.#earlierNodePorts = record.nodePorts;
      this.#nodePorts = () => record.nodePorts;
      this.#savedText = formatServerRecord(record);
      if (record.drains.length > 0) this.#savedOffset = wallNow - now;
    } catch (error) {
      logger.warn(
        "Cannot read the record of virtual servers; draining endpoints get their whole time again",
        { file: file.path, error: messageOf(error), movedTo: await this.#setAside(error) },
      );
    }
  }

  /** Sets the source of the servers that are draining. */
  follow(drains: () => readonly DrainingServer[]): void {
    this.#drains = drains;
  }

  /**
   * Returns the time at which a real server began to drain in an earlier run, by the clock of this
   * process.
   */
  beganAt(server: ServerKey, real: RealServerKey): number | undefined {
    return this.#beginnings.get(`${server} ${real}`);
  }

  /** The kernel holds the desired state, so the record of an earlier run is obsolete. */
  settled(): void {
    if (this.#beginnings.size > 0) {
      // Servers that the kernel no longer has are forgotten.
      this.#beginnings.clear();
      this.touch();
    }
    this.#earlierNodePorts = NO_NODE_PORTS;
  }

  /** Records the node ports and their addresses. */
  setNodePorts(nodePorts: () => NodePortServers): void {
    this.#nodePorts = nodePorts;
    this.touch();
  }

  /** Schedules a write. */
  touch(): void {
    this.#isDirty = true;
    this.#arm(SAVE_DELAY_MS);
  }

  /** Saves again if the time of day was set, since recorded times would be wrong. */
  checkClock(): void {
    const { clock } = this.#dependencies;
    if (this.#savedOffset === undefined) return;
    const step = clock.wallNow() - clock.now() - this.#savedOffset;
    if (Math.abs(step) > CLOCK_STEP_MS) this.touch();
  }

  /** Writes pending changes, and stops. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#timer = undefined;
    await this.#saving;
    if (this.#isDirty) await this.#save();
  }

  #arm(delayMs: number): void {
    if (this.#isClosed || this.#timer || this.#saving) return;
    this.#timer = this.#dependencies.clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      this.#saving = this.#save().then((isDone) => {
        this.#saving = undefined;
        if (this.#isDirty) this.#arm(isDone ? SAVE_DELAY_MS : RETRY_MS);
      });
    });
  }

  /** Returns whether the record was saved. */
  async #save(): Promise<boolean> {
    const { clock, file, logger } = this.#dependencies;
    this.#isDirty = false;
    const offset = clock.wallNow() - clock.now();
    const drains = this.#drains().map((each) => ({ ...each, sinceMs: each.sinceMs + offset }));
    const text = formatServerRecord({ drains, nodePorts: this.#nodePorts() });
    this.#savedOffset = drains.length > 0 ? offset : undefined;
    if (text === this.#savedText) return true;
    try {
      await file.save(text);
    } catch (error) {
      this.#isDirty = true;
      this.#report(error);
      return false;
    }
    this.#savedText = text;
    if (this.#isFailureLogged) logger.info("The record of virtual servers can be written again");
    this.#isFailureLogged = false;
    return true;
  }

  #report(error: unknown): void {
    const { file, logger } = this.#dependencies;
    if (this.#isFailureLogged) return;
    this.#isFailureLogged = true;
    logger.warn(
      "Cannot write to the state directory: Services work, but after a restart draining endpoints " +
        "get their whole time again",
      {
        file: file.path,
        error: messageOf(error),
        cure: "make it writable, or give another one with --state-dir",
      },
    );
  }

  /** Moves aside only a file that cannot be a record, because a read error may be temporary. */
  async #setAside(error: unknown): Promise<string | undefined> {
    if (!(error instanceof SyntaxError)) return undefined;
    return await this.#dependencies.file.setAside().catch(() => undefined);
  }
}

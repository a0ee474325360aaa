/**
 * Brings BIRD to a plan: checks the new configuration in BIRD, replaces the file, has BIRD read it,
 * and makes sure that BIRD has it. After a refusal, the former configuration stays in effect and on disk.
 *
 * @module
 */
import type { Quarantined } from "../../lib/controller/data_plane.ts";
import type { LogFields } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { fileState } from "../../lib/os/file_state.ts";
import { removeFile, writeFile } from "../../lib/os/write_file.ts";
import type { BgpPlan } from "../../lib/routing/bgp_plan.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import { type BgpItem, type BirdConfig, birdConfigSteps } from "./bird_config.ts";
import { type BirdControl, BirdError, type ConfigurationInForce } from "./bird_control.ts";
import { OwnFile, readSecrets, type Secrets } from "./bird_files.ts";
import { peerLines } from "./bird_peer.ts";
import { type BgpSession, parseSessions } from "./bird_status.ts";
import { protocolOf } from "./bird_text.ts";

/** The paths of BIRD. */
export interface BirdPaths {
  /** The configuration file that BIRD is started with. */
  readonly file: string;
  /** The file of passwords, which {@linkcode file} includes. */
  readonly secretsFile: string;
  /** The control socket. */
  readonly socket: string;
}

/** The paths of `deploy/kube-relay-bird.service`. */
export const DEFAULT_BIRD_PATHS: BirdPaths = {
  file: "/run/kube-relay/bird.conf",
  secretsFile: "/run/kube-relay/bird-secrets.conf",
  socket: "/run/kube-relay-bird/bird.ctl",
};

interface BirdWriterDependencies {
  readonly clock: Clock;
  readonly control: BirdControl;
  readonly random: () => number;
}

/** The current and the desired state of BIRD. */
export interface BirdState {
  readonly config: BirdConfig;
  readonly secrets: Secrets;
  /** `undefined` = BIRD does not run. */
  readonly inForce: ConfigurationInForce | undefined;
  readonly former: { readonly text: string | undefined; readonly secrets: string | undefined };
  /** Empty if BIRD does not run. */
  readonly sessions: readonly BgpSession[];
  readonly quarantined: readonly Quarantined<BgpItem>[];
}

/** The result of {@linkcode BirdWriter.apply}. */
export interface Applied {
  readonly operations: Readonly<Record<string, number>>;
  readonly quarantined: readonly Quarantined<BgpItem>[];
}

/** The BIRD on the socket belongs to another program or the administrator. */
export class ForeignBirdError extends Error {
  override name = "ForeignBirdError";
}

/** Writes one BIRD. The caller runs one method at a time. */
export class BirdWriter {
  readonly #clock: Clock;
  readonly #control: BirdControl;
  readonly #random: () => number;
  readonly #paths: BirdPaths;
  readonly #file: OwnFile;
  readonly #secretsFile: OwnFile;
  #applied: { readonly id: string; readonly fileVersion: string | undefined } | undefined;

  constructor({ clock, control, random }: BirdWriterDependencies, paths: BirdPaths) {
    this.#clock = clock;
    this.#control = control;
    this.#random = random;
    this.#paths = paths;
    this.#file = new OwnFile(paths.file);
    this.#secretsFile = new OwnFile(paths.secretsFile);
  }

  /** Returns the configuration file's text. Throws if it is not ours. */
  readFile(): Promise<string | undefined> {
    return this.#file.read();
  }

  /** The sessions that BIRD has. Throws a BirdError. */
  async sessions(): Promise<readonly BgpSession[]> {
    const protocols = await this.#control.run("show protocols all");
    return parseSessions(protocols, await this.#control.run("show bfd sessions").catch(noBfd));
  }

  /** Reads everything that {@linkcode apply} depends on. Changes nothing. */
  async look(plan: BgpPlan): Promise<BirdState> {
    const { secretsFile } = this.#paths;
    const former = { text: await this.#file.read(), secrets: await this.#secretsFile.read() };
    const inForce = await this.#inForce();
    const sessions = inForce === undefined ? [] : await this.sessions();
    const shutDown = stillShutDown(plan, { former: former.text, sessions });
    const random = this.#random;
    const secrets = await readSecrets({ random }, { former: former.secrets, peers: plan.peers });
    const { leftOut } = secrets;
    const steps = birdConfigSteps(plan, { leftOut, secretsFile, shutDown });
    const config = await inSteps({ clock: this.#clock }, steps);
    const excessive = [...shutDown].map((name): Quarantined<BgpItem> => ({
      key: `peer ${name}`,
      reason: `Peer ${name} sent more than ${plan.imports.limitPerPeer} prefixes and was shut ` +
        `down. Run 'birdc -s ${this.#paths.socket} enable ${protocolOf(name)}' to try again`,
    }));
    const quarantined = [...config.quarantined, ...excessive];
    return { config, former, inForce, quarantined, secrets, sessions };
  }

  /** Brings BIRD to a plan. Throws an Error if BIRD does not run or refuses it. */
  async apply(plan: BgpPlan): Promise<Applied> {
    this.#applied = undefined;
    const state = await this.look(plan);
    const { quarantined } = state;
    if (state.inForce === undefined) {
      await this.#write(state);
      throw new Error(
        `Cannot apply the BGP configuration: BIRD does not listen on ${this.#paths.socket}. ` +
          `It reads the new configuration from ${this.#paths.file} when it starts`,
      );
    }
    const operations = isInForce(state)
      ? await this.#listenAgain(state.sessions)
      : { files: await this.#configure(state), reconfigurations: 1 };
    this.#applied = { id: state.config.id, fileVersion: await this.#fileVersion() };
    return { operations, quarantined };
  }

  /**
   * Starts sessions that had no local address or port. BIRD gives them up, although the address may be
   * added and the other program may end later.
   */
  async #listenAgain(sessions: readonly BgpSession[]): Promise<Applied["operations"]> {
    const deaf = sessions.filter(({ lastError }) => lastError?.includes("No listening socket"));
    for (const { peer } of deaf) await this.#control.run(`enable ${protocolOf(peer)}`);
    return deaf.length > 0 ? { sessions: deaf.length } : {};
  }

  /**
   * Whether BIRD or the files changed since {@linkcode apply}, as log fields. Much cheaper than
   * {@linkcode look}; password files are not read.
   */
  async lookForChange(): Promise<LogFields | undefined> {
    const applied = this.#applied;
    if (applied === undefined) return undefined;
    const inForce = await this.#inForce();
    if (inForce !== undefined && inForce.id !== applied.id) {
      return { wanted: applied.id, found: inForce.id };
    }
    const version = await this.#fileVersion();
    return version === applied.fileVersion ? undefined : { file: this.#paths.file };
  }

  /** Has BIRD drop all sessions and routes, if it runs with a configuration of kube-relay. */
  async empty(plan: BgpPlan): Promise<void> {
    const state = await this.look(plan);
    if (state.inForce !== undefined) await this.#configure(state);
  }

  /** Removes what an interrupted sync left. */
  async removeCandidate(): Promise<void> {
    await removeFile(`${this.#paths.file}.candidate`);
  }

  async #fileVersion(): Promise<string | undefined> {
    return (await fileState(this.#paths.file))?.version;
  }

  /** `undefined` = BIRD does not run. Throws an Error if it is not ours. */
  async #inForce(): Promise<ConfigurationInForce | undefined> {
    let inForce: ConfigurationInForce;
    try {
      inForce = await this.#control.configurationInForce();
    } catch (error) {
      if (error instanceof BirdError && error.kind === "down") return undefined;
      throw error;
    }
    if (inForce.id !== undefined) return inForce;
    throw new ForeignBirdError(
      `Cannot configure the BIRD on ${this.#paths.socket}: kube-relay did not write its ` +
        `configuration. Start a BIRD with '-c ${this.#paths.file}' on a socket of its own`,
    );
  }

  async #configure(state: BirdState): Promise<number> {
    const { former, config, secrets } = state;
    const candidate = `${this.#paths.file}.candidate`;
    if (secrets.text !== former.secrets) await this.#secretsFile.write(secrets.text);
    try {
      await writeFile(candidate, "private", config.text);
      await this.#control.check(candidate);
      const files = await this.#write(state);
      await this.#control.configure();
      const { id } = await this.#control.configurationInForce();
      if (id === config.id) return files;
      await this.#control.undo();
      throw new Error(
        `Cannot configure the BIRD on ${this.#paths.socket}: it does not read its configuration ` +
          `from ${this.#paths.file}`,
      );
    } catch (error) {
      // A time-out says nothing about the outcome: the next sync compares.
      if (error instanceof BirdError && error.kind === "timeout") throw error;
      await this.#file.write(former.text);
      await this.#secretsFile.write(former.secrets);
      throw isRefusal(error) ? refusal(error, { candidate, text: config.text }) : error;
    } finally {
      await removeFile(candidate);
    }
  }

  /** Returns the number of files that differed. */
  async #write({ config, former, secrets }: BirdState): Promise<number> {
    const differ = [secrets.text !== former.secrets, config.text !== former.text];
    if (differ[0]) await this.#secretsFile.write(secrets.text);
    if (differ[1]) await this.#file.write(config.text);
    return differ.filter(Boolean).length;
  }
}

/** Whether BIRD has the wanted configuration, and would have it after a restart. */
export function isInForce({ config, former, inForce, secrets }: BirdState): boolean {
  return inForce?.id === config.id && former.text === config.text &&
    former.secrets === secrets.text &&
    // Without passwords the file is not included.
    (inForce.secretsId ?? secrets.id) === secrets.id;
}

function isRefusal(error: unknown): error is BirdError {
  return error instanceof BirdError && error.kind === "configuration";
}

/** The words of BIRD with the text of the line that it names. */
function refusal(
  error: BirdError,
  { candidate, text }: { readonly candidate: string; readonly text: string },
): Error {
  const prefix = `${candidate}:`;
  const [line = ""] = error.reason.startsWith(prefix)
    ? error.reason.slice(prefix.length).split(":")
    : [];
  const quote = text.split("\n")[Number(line) - 1]?.trim();
  const place = line === "" || quote === undefined ? "" : ` (line ${line}: "${quote}")`;
  const words = `BIRD refused the configuration: ${error.reason}${place}`;
  return new Error(`${words}. The former one stays in effect`, { cause: error });
}

/**
 * Peers that sent too many prefixes stay shut down: each reconfiguration would start them again.
 * They are tried again when their settings change, and when the administrator enables them in BIRD.
 */
function stillShutDown(
  plan: BgpPlan,
  { former = "", sessions }: {
    readonly former: string | undefined;
    readonly sessions: readonly BgpSession[];
  },
): ReadonlySet<string> {
  const blockIn = (name: string, isShutDown: boolean) => {
    const peer = plan.peers.find((one) => one.name === name);
    // A peer that BIRD cannot take any more is left out, which is reported elsewhere.
    const lines = peer && attemptOr(undefined, () => peerLines(plan, peer, { isShutDown }));
    return lines !== undefined && former.includes(`\n${lines.join("\n")}\n`);
  };
  const names = sessions.filter(({ peer, isShutDown, state }) =>
    state === "Down" && (blockIn(peer, true) || isShutDown && blockIn(peer, false))
  ).map(({ peer }) => peer);
  return new Set(names);
}

function attemptOr<T, Other>(other: Other, attempt: () => T): T | Other {
  try {
    return attempt();
  } catch (error) {
    if (error instanceof RangeError) return other;
    throw error;
  }
}

/** Without a BFD protocol the command fails. */
function noBfd(error: unknown): readonly never[] {
  if (error instanceof BirdError && error.code !== undefined) return [];
  throw error;
}

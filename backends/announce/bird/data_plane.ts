/**
 * BGP by a BIRD of its own. BIRD is a service besides kube-relay: sessions and routes stay while
 * kube-relay restarts, and BIRD restarts gracefully by itself.
 *
 * A new configuration is checked in BIRD before it replaces the file that BIRD reads. After a refusal, the
 * former one stays in effect and on disk.
 *
 * @module
 */
import {
  type BgpItem,
  type BirdConfig,
  birdConfig,
  OWNER_LINE,
  passwordOf,
  peerLines,
  protocolOf,
  quoted,
  SECRETS_ID,
} from "./bird_config.ts";
import { BirdControl, BirdError, type ConfigurationInForce } from "./bird_control.ts";
import { type BgpSession, describeSession, parsePrefixes, parseSessions } from "./bird_status.ts";
import { type OwnFileKind, readOwnFile, writeOwnFile } from "../own_file.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { atOnce, inSteps } from "../../netfilter/in_steps.ts";
import { VerificationSchedule } from "../../netfilter/verification_schedule.ts";
import type {
  CleanupReport,
  DataPlaneEdges,
  Quarantined,
  SyncReport,
} from "../../../lib/engine/data_plane.ts";
import type { LogFields, Logger } from "../../../lib/log/logger.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { cidrFamilyOf } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { fileState } from "../../../lib/os/file_state.ts";
import { connectUnix } from "../../../lib/os/network.ts";
import { readTextUpTo } from "../../../lib/os/read_text_up_to.ts";
import { removeFile, writeFile } from "../../../lib/os/write_file.ts";
import {
  type BgpPeer,
  type BgpPlan,
  carriesFamily,
  type ReadSecret,
  SecretUnknownError,
} from "../../../lib/routing/bgp_plan.ts";
import type { RoutingDifference } from "../../../lib/routing/compare_layer2.ts";

/** Longest wait of a report: status and metrics have more to say than what BIRD knows. */
const REPORT_MS = 2_000;

/** The paths of BIRD. */
export interface BirdPaths {
  /** The configuration file that BIRD is started with. */
  readonly file: string;
  /** The file of passwords, which {@linkcode file} includes. */
  readonly secretsFile: string;
  /** @default {there are no Secrets} */
  readonly readSecret?: ReadSecret | undefined;
  /** The control socket. */
  readonly socket: string;
}

/** What is found, and what a plan wants. */
interface BirdState {
  readonly config: BirdConfig;
  readonly secrets: Secrets;
  /** The texts of the files. */
  readonly former: { readonly text: string | undefined; readonly secrets: string | undefined };
  /** `undefined` = BIRD does not run. */
  readonly inForce: ConfigurationInForce | undefined;
  /** Empty if BIRD does not run. */
  readonly sessions: readonly BgpSession[];
  /** Peers that stay shut down. */
  readonly excessive: readonly Quarantined<BgpItem>[];
}

/** The BIRD on the socket belongs to another program or the administrator. */
class ForeignBirdError extends Error {
  override name = "ForeignBirdError";
}

const NO_ROUTE = 8001;

/** Drives the BIRD of one node. The keys of its syncs are peers and prefixes. */
export class BirdDataPlane implements AsyncDisposable {
  readonly #clock: Clock;
  readonly #commands: CommandRunner;
  readonly #random: () => number;
  readonly #logger: Logger;
  readonly #control: BirdControl;
  readonly #paths: BirdPaths;
  readonly #pauseMs: number;
  readonly #schedule: VerificationSchedule;
  readonly #turns = new OneAtATime();
  #plan: BgpPlan | undefined;
  /** The configuration in force, and its file; `undefined` = unknown. */
  #applied: { readonly id: string; readonly fileVersion: string | undefined } | undefined;
  /** Shared by all reports. */
  #reading: Promise<readonly BgpSession[]> | undefined;

  /** `pauseMs`: time between two looks for a BIRD that was restarted or changed. */
  constructor(
    { clock, commands, connect = connectUnix, logger, random }: DataPlaneEdges & {
      /** @default {the machine's Unix sockets} */
      readonly connect?: typeof connectUnix;
    },
    paths: BirdPaths,
    pauseMs = 5_000,
  ) {
    this.#clock = clock;
    this.#commands = commands;
    this.#random = random;
    this.#logger = logger.with({ component: "bird" });
    this.#control = new BirdControl(clock, connect, paths.socket);
    this.#paths = paths;
    this.#pauseMs = pauseMs;
    this.#schedule = new VerificationSchedule(random, { shortestMs: 2 * pauseMs });
  }

  /** Rejects if BIRD does not run or refuses the plan, and if its files belong to another program. */
  sync(plan: BgpPlan): Promise<SyncReport<BgpItem>> {
    return this.#turns.run(async () => {
      const startedAt = this.#clock.now();
      const isKnown = plan === this.#plan && this.#applied !== undefined;
      this.#plan = plan;
      const report = await this.#apply(plan);
      this.#schedule.verified(this.#clock.now(), this.#clock.now() - startedAt);
      const { operations } = report;
      if (isKnown && Object.keys(operations).length > 0) {
        this.#logger.info("Reconfigured BIRD", operations);
      }
      return report;
    });
  }

  /**
   * Calls back when BIRD or its configuration changed or cannot be read, and now and then for what only a sync notices, such
   * as another password, until the signal is aborted. Never rejects.
   */
  async watch(onChange: () => void, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#clock.sleep(this.#pauseMs, signal).catch(() => {});
      // After a failure, the next sync compares everything.
      if (signal.aborted || !this.#applied) continue;
      try {
        // Much cheaper than a comparison; password files are not read.
        const changed = await this.#turns.run(async (): Promise<LogFields | undefined> => {
          const applied = this.#applied;
          if (!applied) return undefined;
          const found = (await this.#inForce())?.id;
          if (found !== undefined && found !== applied.id) return { wanted: applied.id, found };
          const { file } = this.#paths;
          const version = (await fileState(file))?.version;
          return version === applied.fileVersion ? undefined : { file };
        });
        if (changed) {
          this.#logger.warn("BIRD runs with another configuration; repairing", changed);
        }
        if (changed || this.#schedule.isDue(this.#clock.now())) onChange();
      } catch {
        // The sync meets the same fault, reports it and is tried again.
        onChange();
      }
    }
  }

  /** The configuration for a plan, without passwords. The same plan gives the same bytes. Pure. */
  *render(plan: BgpPlan): Iterable<string> {
    yield atOnce(birdConfig(plan, this.#paths.secretsFile)).text;
  }

  /** The sessions of the peers of a plan. Rejects if BIRD does not run. */
  async sessions(plan: BgpPlan): Promise<
    readonly (BgpSession & { readonly description: string })[]
  > {
    const reading = this.#reading ??= this.#sessions().finally(() => {
      this.#reading = undefined;
    });
    const late = Promise.withResolvers<never>();
    const timer = this.#clock.setTimer(REPORT_MS, () => {
      late.reject(new Error(`BIRD has not answered within ${REPORT_MS / 1000} s`));
    });
    const sessions = await Promise.race([reading, late.promise]).finally(() => timer.cancel());
    return plan.peers.flatMap((peer) => {
      const session = sessions.find((one) => one.peer === peer.name);
      return session ? [{ ...session, description: describeSession(session, peer) }] : [];
    });
  }

  /** Removes everything that any run added, or only reports it. */
  cleanup({ dryRun } = { dryRun: false }): Promise<CleanupReport> {
    return this.#turns.run(async () => {
      const run = new RemovalRun({ commands: this.#commands }, { dryRun });
      await this.#cleanUp(run).catch((error) => run.fail(messageOf(error)));
      return run.report();
    });
  }

  /** Sessions are BIRD's: they go on whether this process does or not. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turns.run(() => Promise.resolve());
  }

  /** Works without a plan, from the files of an earlier run. */
  async #cleanUp(run: RemovalRun): Promise<void> {
    const { file, secretsFile, socket } = this.#paths;
    const text = await readOwnFile(file, BIRD_FILE);
    if (text === undefined) return;
    const value = (pattern: RegExp) => pattern.exec(text)?.[1] ?? "";
    const table = Number(value(/^ {2}kernel table (\d+);$/m));
    const metric = Number(value(/^ {2}metric (\d+);$/m));
    if (!run.dryRun) {
      const none = { mesh: [], external: [], refused: [], defaultRoute: false, limitPerPeer: 1 };
      const routerId = parseIpAddress(value(/^router id (\S+);$/m));
      const imports = { ...none, table, metric };
      // BIRD would write its routes again, and would go on announcing.
      try {
        const plan = { routerId, localAs: 1, peers: [], announced: [], imports };
        const state = await this.#look(plan);
        if (state.inForce !== undefined) await this.#configure(state);
      } catch (error) {
        if (!(error instanceof ForeignBirdError)) throw error;
        run.keep(`the BIRD on ${socket}: kube-relay did not write its configuration`);
      }
    }
    // BIRD marks its routes, and ours have a metric of their own. A running BIRD has removed them.
    const ours = ["table", `${table}`, "proto", "bird", "metric", `${metric}`];
    for (const flag of ["-4", "-6"]) {
      const { stdout } = await this.#commands.run("ip", [flag, "route", "show", ...ours]);
      const routes = stdout.split("\n").filter((line) => line.trim() !== "");
      if (routes.length === 0) continue;
      const removes = routes.map((line) => `route ${line.trim().split(/\s+/)[0]} of BIRD`);
      await run.do("routes of BIRD", { command: ["ip", flag, "route", "flush", ...ours], removes });
    }
    if (!run.dryRun) await removeFile(`${file}.candidate`);
    for (const path of [file, secretsFile]) await run.removeFile(path);
  }

  /** The sessions that BIRD has. Throws a BirdError. */
  async #sessions(): Promise<readonly BgpSession[]> {
    const protocols = await this.#control.run("show protocols all");
    const bfd = await this.#control.run("show bfd sessions").catch((error) => {
      // Without a BFD protocol the command fails.
      if (error instanceof BirdError && error.code !== undefined) return [];
      throw error;
    });
    return parseSessions(protocols, bfd);
  }

  /** The prefixes that each peer whose session is up is sent now. Rejects if BIRD does not run. */
  async sentPrefixes(
    sessions?: readonly BgpSession[],
  ): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
    const sent = new Map<string, ReadonlySet<string>>();
    for (const { peer, state } of sessions ?? await this.#sessions()) {
      if (state !== "Established") continue;
      const lines = await this.#control.run(`show route export ${protocolOf(peer)}`)
        .catch((error) => {
          if (!(error instanceof BirdError) || error.kind !== "absent") throw error;
          // With this code BIRD sends no prefix. With another code, the session went down meanwhile.
          return error.code === NO_ROUTE ? [] : undefined;
        });
      if (lines !== undefined) sent.set(peer, parsePrefixes(lines));
    }
    return sent;
  }

  /** Brings BIRD to a plan. Throws an Error if BIRD does not run or refuses it. */
  async #apply(plan: BgpPlan): Promise<SyncReport<BgpItem>> {
    this.#applied = undefined;
    const state = await this.#look(plan);
    const { config, excessive, inForce, sessions } = state;
    if (inForce === undefined) {
      await this.#write(state);
      throw new Error(
        `Cannot apply the BGP configuration: BIRD does not listen on ${this.#paths.socket}. ` +
          `It reads the new configuration from ${this.#paths.file} when it starts`,
      );
    }
    const operations = isInForce(state)
      ? await this.#listenAgain(sessions)
      : { files: await this.#configure(state), reconfigurations: 1 };
    const fileVersion = (await fileState(this.#paths.file))?.version;
    this.#applied = { id: config.id, fileVersion };
    // The configuration is one text, which is always compared as a whole.
    return { full: true, operations, quarantined: [...config.quarantined, ...excessive] };
  }

  /** How BIRD differs from a plan: its configuration, its sessions and what it sends. Changes nothing. */
  compare(plan: BgpPlan): Promise<readonly RoutingDifference[]> {
    return this.#turns.run(async () => {
      const state = await this.#look(plan);
      const { config, former, inForce, sessions } = state;
      const found: RoutingDifference[] = [];
      const base = { object: "configuration", wanted: config.id };
      if (former.text !== config.text) {
        const kind = former.text === undefined ? "missing" : "altered";
        found.push({ ...base, name: "file", kind });
      }
      if (!inForce) found.push({ ...base, name: "BIRD", kind: "missing" });
      else if (former.text === config.text && !isInForce(state)) {
        found.push({ ...base, name: "BIRD", kind: "altered", found: inForce.id ?? "" });
      }
      const compareNames = (object: string, wanted: Iterable<string>, there: Iterable<string>) => {
        const [isWanted, isThere] = [new Set(wanted), new Set(there)];
        for (const name of isWanted.difference(isThere)) {
          found.push({ object, name, kind: "missing" });
        }
        for (const name of isThere.difference(isWanted)) {
          found.push({ object, name, kind: "extra" });
        }
      };
      const sent = await this.sentPrefixes(sessions);
      const leftOut = new Set(config.quarantined.map(({ key }) => key));
      const peers = plan.peers.filter(({ name }) => !leftOut.has(`peer ${name}`));
      compareNames("peer", peers.map(({ name }) => name), sessions.map(({ peer }) => peer));
      for (const peer of peers) {
        const there = sent.get(peer.name);
        if (there === undefined) continue;
        const inWords = (prefix: string) => `${prefix} to ${peer.name}`;
        const wanted = plan.announced.filter(({ prefix, to }) =>
          to.includes(peer.role) && !leftOut.has(`prefix ${prefix}`) &&
          carriesFamily(peer, cidrFamilyOf(prefix))
        ).map(({ prefix }) => inWords(prefix));
        // Only external peers can have extra prefixes: a reflector sends those of others.
        const names = [...there].map(inWords)
          .filter((name) => peer.role === "external" || wanted.includes(name));
        compareNames("announcement", wanted, names);
      }
      return found;
    });
  }

  async #look(plan: BgpPlan): Promise<BirdState> {
    const { file, secretsFile, socket } = this.#paths;
    const former = {
      text: await readOwnFile(file, BIRD_FILE),
      secrets: await readOwnFile(secretsFile, BIRD_FILE),
    };
    const inForce = await this.#inForce();
    const sessions = inForce === undefined ? [] : await this.#sessions();
    const shutDown = stillShutDown(plan, former.text ?? "", sessions);
    const { readSecret } = this.#paths;
    const secrets = await readSecrets(this.#random, former.secrets, plan.peers, readSecret);
    const steps = birdConfig(plan, secretsFile, secrets.leftOut, shutDown);
    const config = await inSteps({ clock: this.#clock }, steps);
    const excessive = [...shutDown].map((name): Quarantined<BgpItem> => ({
      key: `peer ${name}`,
      reason: `Peer ${name} sent more than ${plan.imports.limitPerPeer} prefixes and was shut ` +
        `down. Run 'birdc -s ${socket} enable ${protocolOf(name)}' to try again`,
    }));
    return { config, excessive, former, inForce, secrets, sessions };
  }

  /** `undefined` = BIRD does not run. Throws an Error if it is not ours. */
  async #inForce(): Promise<ConfigurationInForce | undefined> {
    const inForce = await this.#control.configurationInForce().catch((error) => {
      if (error instanceof BirdError && error.kind === "down") return undefined;
      throw error;
    });
    if (inForce === undefined || inForce.id !== undefined) return inForce;
    throw new ForeignBirdError(
      `Cannot configure the BIRD on ${this.#paths.socket}: kube-relay did not write its ` +
        `configuration. Start a BIRD with '-c ${this.#paths.file}' on a socket of its own`,
    );
  }

  /**
   * Starts sessions that had no local address or port. BIRD gives them up, although the address may be
   * added and the other program may end later.
   */
  async #listenAgain(sessions: readonly BgpSession[]): Promise<SyncReport<BgpItem>["operations"]> {
    const deaf = sessions.filter(({ lastError }) => lastError?.includes("No listening socket"));
    for (const { peer } of deaf) await this.#control.run(`enable ${protocolOf(peer)}`);
    return deaf.length > 0 ? { sessions: deaf.length } : {};
  }

  async #configure(state: BirdState): Promise<number> {
    const { former, config, secrets } = state;
    const { file, secretsFile, socket } = this.#paths;
    // What is checked in BIRD; a sync that was interrupted may leave it.
    const candidate = `${file}.candidate`;
    try {
      if (secrets.text !== former.secrets) await writeOwnFile(secretsFile, BIRD_FILE, secrets.text);
      await writeFile(candidate, "private", config.text);
      await this.#control.run(`configure check ${quoted(candidate)}`);
      const files = await this.#write(state);
      // Sessions whose settings stay the same go on.
      await this.#control.run("configure");
      const { id } = await this.#control.configurationInForce();
      if (id === config.id) return files;
      await this.#control.run("configure undo");
      throw new Error(
        `Cannot configure the BIRD on ${socket}: it does not read its configuration from ${file}`,
      );
    } catch (error) {
      // A time-out says nothing about the outcome: the next sync compares.
      if (error instanceof BirdError && error.kind === "timeout") throw error;
      await writeOwnFile(file, BIRD_FILE, former.text);
      await writeOwnFile(secretsFile, BIRD_FILE, former.secrets);
      throw error instanceof BirdError && error.kind === "configuration"
        ? refusal(error, candidate, config.text)
        : error;
    } finally {
      await removeFile(candidate);
    }
  }

  /** Returns the number of files that differed. */
  async #write({ config, former, secrets }: BirdState): Promise<number> {
    const differ = [secrets.text !== former.secrets, config.text !== former.text];
    if (differ[0]) await writeOwnFile(this.#paths.secretsFile, BIRD_FILE, secrets.text);
    if (differ[1]) await writeOwnFile(this.#paths.file, BIRD_FILE, config.text);
    return differ.filter(Boolean).length;
  }
}

/** Whether BIRD has the wanted configuration, and would have it after a restart. */
function isInForce({ config, former, inForce, secrets }: BirdState): boolean {
  return inForce?.id === config.id && former.text === config.text &&
    former.secrets === secrets.text &&
    // Without passwords the file is not included.
    (inForce.secretsId ?? secrets.id) === secrets.id;
}

/** The words of BIRD with the text of the line that it names. */
function refusal(error: BirdError, file: string, text: string): Error {
  const { reason } = error;
  const line = reason.startsWith(`${file}:`) ? reason.slice(file.length + 1).split(":")[0] : "";
  const quote = text.split("\n")[Number(line) - 1]?.trim();
  const place = quote === undefined ? "" : ` (line ${line}: "${quote}")`;
  const words = `BIRD refused the configuration: ${reason}${place}`;
  return new Error(`${words}. The former one stays in effect`, { cause: error });
}

/**
 * Peers that sent too many prefixes stay shut down: each reconfiguration would start them again.
 * They are tried again when their settings change, and when the administrator enables them in BIRD.
 */
function stillShutDown(
  plan: BgpPlan,
  former: string,
  sessions: readonly BgpSession[],
): ReadonlySet<string> {
  const blockIn = (name: string, isShutDown: boolean) => {
    const peer = plan.peers.find((one) => one.name === name);
    try {
      return peer && former.includes(`\n${peerLines(plan, peer, { isShutDown }).join("\n")}\n`);
    } catch (error) {
      // A peer that BIRD cannot take any more is left out, which is reported elsewhere.
      if (error instanceof RangeError) return false;
      throw error;
    }
  };
  const names = sessions.filter(({ peer, isShutDown, state }) =>
    state === "Down" && (blockIn(peer, true) || isShutDown && blockIn(peer, false))
  ).map(({ peer }) => peer);
  return new Set(names);
}

const LONGEST_PASSWORD_FILE = 4_096;
/** The kernel's limit for a key of TCP-MD5. */
const LONGEST_PASSWORD = 80;

/** The files of a configuration. */
const BIRD_FILE: OwnFileKind = {
  name: "BIRD configuration",
  folderMode: 0o700,
  isOwn: (text) => text.startsWith(`${OWNER_LINE}\n`),
};

/** The passwords of a plan's peers, as the text of the file that BIRD includes. */
interface Secrets {
  /** Changes with every password. It is random: a hash would let others test guesses. */
  readonly id: string;
  readonly text: string;
  /** Peers whose password cannot be used, by name, with the reason. */
  readonly leftOut: ReadonlyMap<string, string>;
}

/**
 * Reads the passwords of peers. `former` is the text of the secrets file: a peer whose Secret cannot be
 * read for now keeps its password there. Never rejects.
 */
export async function readSecrets(
  random: () => number,
  former: string | undefined,
  peers: readonly BgpPeer[],
  readSecret: ReadSecret = () =>
    Promise.reject(new Error("there is no API server to read it from")),
): Promise<Secrets> {
  const leftOut = new Map<string, string>();
  const lines: string[] = [];
  for (const { name, passwordFile = "", passwordSecret } of peers) {
    if (passwordFile === "" && !passwordSecret) continue;
    const source = passwordSecret
      ? `key '${passwordSecret.key}' of Secret '${passwordSecret.name}'`
      : `password file '${passwordFile}'`;
    try {
      const text = passwordSecret
        ? new TextDecoder("utf-8", { fatal: true }).decode(await readSecret(passwordSecret))
        : await readTextUpTo(passwordFile, LONGEST_PASSWORD_FILE, { onlyFiles: true });
      const password = text.replace(/\r?\n$/, "");
      const bytes = new TextEncoder().encode(password).length;
      if (bytes === 0) throw new RangeError("it is empty");
      if (bytes > LONGEST_PASSWORD) {
        throw new RangeError(`the password has ${bytes} bytes; TCP-MD5 takes at most 80`);
      }
      lines.push(`define ${passwordOf(name)} = ${quoted(password)};\n`);
    } catch (error) {
      // The session would end. Others must not wait for this Secret.
      const start = `define ${passwordOf(name)} = `;
      const known = error instanceof SecretUnknownError &&
        former?.split("\n").find((line) => line.startsWith(start));
      if (known) lines.push(`${known}\n`);
      else leftOut.set(name, `Cannot use ${source} of peer ${name}: ${messageOf(error)}`);
    }
  }
  const body = lines.join("");
  const head = (id: string) => `${OWNER_LINE}\ndefine ${SECRETS_ID} = ${quoted(id)};\n`;
  const [, formerId] = new RegExp(`^define ${SECRETS_ID} = "(\\w+)";$`, "m").exec(former ?? "") ??
    [];
  const id = formerId !== undefined && former === head(formerId) + body
    ? formerId
    : Math.floor(random() * 2 ** 48).toString(36);
  return { id, text: head(id) + body, leftOut };
}

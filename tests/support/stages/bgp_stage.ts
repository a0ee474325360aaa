/**
 * A node with a BIRD that our data plane drives, and routers next to it, each in a network namespace.
 */
import { BirdDataPlane, type BirdPaths } from "../../../backends/announce/bird/data_plane.ts";
import { assert, assertRejects } from "@std/assert";
import { systemClock } from "../../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import type { BgpPlan } from "../../../lib/routing/bgp_plan.ts";
import type { LineProcess } from "../drivers/line_process.ts";
import { eventually } from "../eventually.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { file, program, type Requirement } from "../requirement.ts";
import { FrrRouter, GobgpRouter } from "./bgp_routers.ts";
import { Namespace, netnsRequirements } from "./netns.ts";

/** What tests with real BGP daemons need, for `isMissing()`. */
export function bgpRequirements(): Requirement[] {
  return [
    ...netnsRequirements(),
    program("bird"),
    program("setpriv"),
    program("gobgpd"),
    program("vtysh"),
    file("/usr/lib/frr/bgpd", "the package frr"),
  ];
}

/** A machine with a BIRD and a data plane. */
export class BirdNode implements AsyncDisposable {
  readonly paths: BirdPaths;
  readonly logger = new MemoryLogger();
  readonly #made: BirdDataPlane[] = [];
  #bird: LineProcess | undefined;

  constructor(readonly namespace: Namespace, folder: string) {
    this.paths = {
      file: `${folder}/bird.conf`,
      secretsFile: `${folder}/bird-secrets.conf`,
      socket: `${folder}/bird.ctl`,
    };
  }

  /** Runs `ip` in the namespace; the data plane runs nothing else. */
  get commands(): CommandRunner {
    const inside = ["netns", "exec", this.namespace.name];
    return {
      run: (tool, args, options) =>
        systemCommandRunner.run("ip", [...inside, tool, ...args], options),
    };
  }

  /** Makes a data plane. */
  makeDataPlane(pauseMs = 60_000): BirdDataPlane {
    const { commands, logger, paths } = this;
    const dataPlane = new BirdDataPlane(
      { clock: systemClock, commands, logger, random: Math.random },
      paths,
      pauseMs,
    );
    this.#made.push(dataPlane);
    return dataPlane;
  }

  /** Starts BIRD as its unit does, with the same capabilities, and waits until it answers. */
  async startBird(configuration = this.paths.file): Promise<void> {
    const { socket } = this.paths;
    const bird = this.namespace.start("setpriv", [
      ...["--bounding-set", "-all,+net_admin,+net_bind_service,+net_raw", "--no-new-privs"],
      ...["bird", "-f", "-R", "-c", configuration, "-s", socket],
    ]);
    this.#bird = bird;
    await eventually("BIRD answers", () => {
      if (bird.hasEnded) throw new Error(`BIRD ended: ${bird.errors}`);
      return this.birdc("show status").then((text) => text.includes("up and running"), () => false);
    });
  }

  /** Runs a command of BIRD's own client. */
  async birdc(command: string): Promise<string> {
    const args = ["-s", this.paths.socket, ...command.split(" ")];
    const { code, stdout, stderr } = await systemCommandRunner.run("birdc", args);
    if (code !== 0) throw new Error(`Cannot run 'birdc ${command}': ${stderr}${stdout}`);
    return stdout;
  }

  get bird(): LineProcess {
    if (this.#bird === undefined) throw new Error("BIRD was not started");
    return this.#bird;
  }

  /** Ends BIRD as `kill -9` does. */
  async killBird(): Promise<void> {
    await this.bird.kill();
  }

  /** The routes of a table, one a line. */
  async routes(table = "main"): Promise<readonly string[]> {
    const { stdout } = await this.commands.run("ip", ["route", "show", "table", table]);
    return stdout.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const dataPlane of this.#made) await dataPlane[Symbol.asyncDispose]();
    await this.#bird?.kill();
  }
}

/** Machines in one network. Machine 1 is 192.0.2.1 and 2001:db8::1, and so on. */
export class BgpStage implements AsyncDisposable {
  /** Has the bridge `br0`, whose ports are `port1` and so on. */
  readonly hub: Namespace;
  readonly #made: AsyncDisposable[] = [];

  private constructor(
    readonly folder: string,
    hub: Namespace,
    readonly machines: readonly Namespace[],
  ) {
    this.hub = hub;
  }

  /** Makes a switch and as many machines. */
  static async create(count: number): Promise<BgpStage> {
    // The user of FRR passes through it.
    const folder = await Deno.makeTempDir();
    await Deno.chmod(folder, 0o755);
    const labels = Array.from({ length: count }, (_, index) => `bgp${index + 1}`);
    const all = await Namespace.createAll(["switch", ...labels]);
    const [hub, ...machines] = all;
    const stage = new BgpStage(folder, hub!, machines);
    stage.#made.push({ [Symbol.asyncDispose]: () => Namespace.removeAll(all) });
    try {
      await hub!.ipBatch(["link add br0 type bridge", "link set br0 up"]);
      for (const [index, machine] of machines.entries()) {
        const port = `port${index + 1}`;
        await hub!.ipBatch([
          `link add ${port} type veth peer name eth0 netns ${machine.name}`,
          `link set ${port} master br0 up`,
        ]);
        await machine.ipBatch([
          `addr add 192.0.2.${index + 1}/24 dev eth0`,
          `addr add 2001:db8::${index + 1}/64 dev eth0 nodad`,
          "link set eth0 up",
        ]);
      }
    } catch (error) {
      await stage[Symbol.asyncDispose]();
      throw error;
    }
    return stage;
  }

  /** Makes a machine, counted from 1, a node. */
  node(number: number): BirdNode {
    const node = new BirdNode(this.machine(number), `${this.folder}/node${number}`);
    Deno.mkdirSync(`${this.folder}/node${number}`, { recursive: true });
    this.#made.push(node);
    return node;
  }

  /** Makes a machine a router with FRR. */
  frr(number: number): FrrRouter {
    return new FrrRouter(this.machine(number), `${this.folder}/frr${number}`);
  }

  /** Makes a machine a router with gobgpd. */
  gobgp(number: number): GobgpRouter {
    return new GobgpRouter(this.machine(number), `${this.folder}/gobgp${number}`);
  }

  /** A machine, counted from 1. */
  machine(number: number): Namespace {
    const machine = this.machines[number - 1];
    if (machine === undefined) throw new Error(`There is no machine ${number}`);
    return machine;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const one of this.#made.toReversed()) await one[Symbol.asyncDispose]();
    await Deno.remove(this.folder, { recursive: true });
  }
}

/** Writes a plan's configuration, and starts BIRD with it. */
export async function startWith(node: BirdNode, plan: BgpPlan): Promise<BirdDataPlane> {
  const dataPlane = node.makeDataPlane();
  await assertRejects(() => dataPlane.sync(plan), Error, "BIRD does not listen on");
  await node.startBird();
  return dataPlane;
}

/** Waits for a session to be established. */
export async function established(
  dataPlane: BirdDataPlane,
  plan: BgpPlan,
  peer: string,
): Promise<void> {
  await eventually(`the session with ${peer}`, async () => {
    const sessions = await dataPlane.sessions(plan);
    return sessions.find((one) => one.peer === peer)?.state === "Established";
  });
}

/** The session of a peer. */
export async function sessionOf(
  dataPlane: BirdDataPlane,
  plan: BgpPlan,
  peer: string,
): Promise<Awaited<ReturnType<BirdDataPlane["sessions"]>>[number]> {
  const session = (await dataPlane.sessions(plan)).find((one) => one.peer === peer);
  assert(session, `there is no session with ${peer}`);
  return session;
}

/**
 * Runs kube-relay through 20,000 object changes at a real API server that fails again and again. Its
 * memory at the end equals that at a quarter of the run, no client of an unchanged Service is affected,
 * and every change has arrived. `KUBE_RELAY_SOAK_CHANGES` makes it longer.
 */
import { assert, assertEquals } from "@std/assert";
import { askControl } from "../../lib/tools/control/control_client.ts";
import type { StatusReport } from "../../lib/tools/status/status_report.ts";
import { permissionFlags } from "../../lib/os/permissions.ts";
import { type ApiMachinery, startApiMachinery } from "../support/stages/api_machinery.ts";
import { eventually } from "../support/eventually.ts";
import { writeKubeconfig } from "../support/builders/kubeconfig_file.ts";
import { LineProcess } from "../support/drivers/line_process.ts";
import type { RelayMeasurement } from "../support/drivers/measured_relay.ts";
import { isSettled, servicesOf } from "../support/stages/relay_process.ts";
import { TcpRelay } from "../support/drivers/tcp_relay.ts";
import { unusedPort } from "../support/drivers/unused_port.ts";
import type { RawObject } from "./server.ts";
import { ownFlags } from "../support/drivers/own_flags.ts";

const CHANGES = Number(Deno.env.get("KUBE_RELAY_SOAK_CHANGES") ?? 20_000);
/** Parts that are measured one by one; the first warms up. */
const BATCHES = 12;
const HALF = BATCHES / 2;
/** Services that exist all the time, besides those that come and go. */
const SERVICES = 200;
/** Writers side by side, each on Services of its own. */
const WRITERS = 8;
const PROGRAM = new URL("../support/drivers/measured_relay.ts", import.meta.url);

/** Defines the test. */
export function defineSoakTests(program: string): void {
  Deno.test(`kube-relay is the same after ${CHANGES} object changes as after a quarter`, async () => {
    await using server = await startApiMachinery({ program });
    await using soak = await Soak.start(server);
    const batches: Measured[] = [];
    for (let batch = 0; batch < BATCHES; batch++) {
      await soak.change(CHANGES / BATCHES);
      batches.push(await soak.measure());
    }
    soak.tell(batches);
    const quarter = batches[BATCHES / 4 - 1]!;
    const end = batches.at(-1)!;
    assert(end.held <= 1.1 * quarter.held, `it holds ${ratio(end.held, quarter.held)} as much`);
    // Single samples are one or two off, both ways; what leaks leaves all later ones above.
    const handles = batches.map((batch) => batch.handles);
    const [open, openLate] = [
      Math.max(...handles.slice(0, HALF)),
      Math.min(...handles.slice(HALF)),
    ];
    assert(openLate <= open, `at least ${openLate} open files and sockets, at most ${open} before`);
    await soak.assertUntouched();
    await soak.assertHolds();
  });
}

interface Measured extends RelayMeasurement {
  /** Heap and buffers. */
  readonly held: number;
  readonly handles: number;
}

class Soak implements AsyncDisposable {
  readonly #server: ApiMachinery;
  readonly #relay: TcpRelay;
  readonly #process: LineProcess;
  readonly #folder: string;
  readonly #client: SteadyClient;
  #made = 0;

  private constructor(
    server: ApiMachinery,
    { relay, process, folder, client }: {
      readonly relay: TcpRelay;
      readonly process: LineProcess;
      readonly folder: string;
      readonly client: SteadyClient;
    },
  ) {
    this.#server = server;
    this.#relay = relay;
    this.#process = process;
    this.#folder = folder;
    this.#client = client;
  }

  static async start(server: ApiMachinery): Promise<Soak> {
    const folder = await Deno.makeTempDir({ prefix: "kube-relay-soak-" });
    const client = new SteadyClient();
    await server.admin.createAll(steadyObjects(client));
    const relay = await TcpRelay.start(Number(new URL(server.url).port));
    const kubeconfig = `${folder}/kubeconfig`;
    await writeKubeconfig(kubeconfig, {
      server: `https://127.0.0.1:${relay.port}`,
      ca: server.ca,
      user: { token: server.token() },
    });
    const process = new LineProcess(Deno.execPath(), [
      "run",
      ...permissionFlags(),
      "--unstable-net",
      "--quiet",
      "--no-check",
      "--v8-flags=--expose-gc",
      PROGRAM.href,
      "--mode=userspace",
      // Node ports only: no address is added to the machine that runs this test.
      "--address-mode=none",
      "--nodeport-addresses=127.0.0.0/8",
      `--kubeconfig=${kubeconfig}`,
      ...ownFlags(folder),
      "--iptables-min-sync-period=10ms",
    ]);
    const soak = new Soak(server, { relay, process, folder, client });
    await soak.#settle();
    client.start();
    return soak;
  }

  /** Makes at least this number of changes, with each fault once, and restores exactly the original objects. */
  async change(count: number): Promise<void> {
    const faults = [
      () => this.#relay.resetOpen(),
      () => this.#relay.closeOpen(),
      () => this.#server.compactEtcd(),
      async () => {
        this.#server.freezeApi();
        await new Promise((resolve) => setTimeout(resolve, 1_500));
        this.#server.thawApi();
      },
    ];
    for (const fail of faults) {
      const part = count / faults.length;
      const options = { first: Math.round(this.#made), count: part / WRITERS };
      const writers = Array.from({ length: WRITERS }, (_, writer) => this.#write(writer, options));
      await fail();
      await Promise.all(writers);
      this.#made += part;
    }
    await this.#settle();
  }

  async measure(): Promise<Measured> {
    const pause = await this.#client.pause();
    await this.#process.writeLine("measure");
    const measurement: RelayMeasurement = JSON.parse(await this.#process.nextLine());
    const handles = await openFiles(this.#process.pid);
    pause.resume();
    return {
      ...measurement,
      held: measurement.heap + measurement.external,
      handles,
    };
  }

  async assertUntouched(): Promise<void> {
    const { asked, failed } = await this.#client.stop();
    assert(asked > 50, `only ${asked} requests were made`);
    assertEquals(failed, [], `of ${asked} requests to a Service that did not change`);
  }

  async assertHolds(): Promise<void> {
    const names = Array.from({ length: SERVICES }, (_, index) => steady(index));
    await this.#server.admin.updateAll(names.map((name) => sliceOf(name, [7])));
    const found = servicesOf(await this.#settle()).map(({ name, endpoints }) =>
      `${name} ${endpoints.map(({ address }) => address).join()}`
    ).filter((text) => !text.startsWith("default/asked "));
    assertEquals(found.sort(), names.map((name) => `default/${name} 10.180.0.7:8080`).sort());
  }

  /** For the log of CI. */
  tell(batches: readonly Measured[]): void {
    for (const [index, { held, resident, handles, cpu }] of batches.entries()) {
      const made = Math.round((index + 1) * this.#made / batches.length);
      // deno-lint-ignore no-console -- the figures are wanted besides the verdict
      console.log(
        `${made} changes: holds ${mib(held)} MiB, resident ${mib(resident)} MiB, ` +
          `${handles} handles, ${(cpu / 1e6).toFixed(1)} s CPU`,
      );
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#client.stop();
    await this.#process.kill();
    await this.#relay[Symbol.asyncDispose]();
    await Deno.remove(this.#folder, { recursive: true });
  }

  /** Rounds of ten changes: a Service and its slice come, change, and go. */
  async #write(
    writer: number,
    { first, count }: { readonly first: number; readonly count: number },
  ): Promise<void> {
    for (let done = 0; done < count;) {
      const round = roundOf(`guest-${writer}-${(first + done) % 40}`, (first + done) % SERVICES);
      for (const step of round) await step(this.#server);
      done += round.length;
    }
    await this.#server.update(sliceOf(steady(writer), [1, 2]));
  }

  async #settle(): Promise<StatusReport> {
    const sentinel = await this.#server.create(serviceOf("sentinel"));
    const asked = async () => await askControl(`${this.#folder}/control.sock`, "/status");
    const has = async (wanted: boolean) => {
      const status = await asked().catch(() => undefined);
      if (!status || !isSettled(status)) return false;
      const { length } = servicesOf(status).filter(({ name }) =>
        name.startsWith("default/sentinel")
      );
      return length > 0 === wanted && status;
    };
    const options = { deadlineMs: 120_000 };
    const log = () => `\n${this.#process.errors}`;
    await eventually("the last change has arrived", () => has(true), options)
      .catch((error) => Promise.reject(new Error(error.message + log())));
    await this.#server.delete(sentinel);
    return await eventually("and is gone", () => has(false), options);
  }
}

type Step = (server: ApiMachinery) => Promise<unknown>;

function roundOf(name: string, index: number): readonly Step[] {
  return [
    (server) => server.create(serviceOf(name)),
    (server) => server.create(sliceOf(name, [1])),
    ...[[1, 2], [2], [2, 3], [], [3, 4]].map((endpoints): Step => (server) =>
      server.update(sliceOf(name, endpoints))
    ),
    (server) => server.update(sliceOf(steady(index), [index % 4, 5])),
    (server) => server.delete(sliceOf(name, [])),
    (server) => server.delete(serviceOf(name)),
  ];
}

function steady(index: number): string {
  return `steady-${index}`;
}

function* steadyObjects(client: SteadyClient): Generator<RawObject> {
  for (let index = 0; index < SERVICES; index++) {
    yield serviceOf(steady(index));
    yield sliceOf(steady(index), [1, 2]);
  }
  yield* client.objects();
}

function serviceOf(name: string, nodePort?: number): RawObject {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.charCodeAt(0)) % 65_000;
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name, namespace: "default" },
    spec: {
      type: nodePort === undefined ? "ClusterIP" : "NodePort",
      clusterIP: `10.96.${hash >> 8}.${hash & 255}`,
      ports: [{ protocol: "TCP", port: 80, ...(nodePort !== undefined && { nodePort }) }],
    },
  };
}

function sliceOf(
  service: string,
  endpoints: readonly number[],
  { address, port }: { readonly address?: string; readonly port?: number } = {},
): RawObject {
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: service,
      namespace: "default",
      labels: { "kubernetes.io/service-name": service },
    },
    addressType: "IPv4",
    endpoints: endpoints.map((last) => ({
      addresses: [address ?? `10.180.0.${last}`],
      conditions: { ready: true },
    })),
    ports: [{ name: "", protocol: "TCP", port: port ?? 8080 }],
  };
}

/** Asks one Service, through its node port, again and again. */
class SteadyClient {
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #nodePort = unusedPort();
  readonly #failed: string[] = [];
  #asked = 0;
  #state: "waiting" | "running" | "pausing" | "stopped" = "waiting";
  #running: Promise<void> | undefined;
  #resume = Promise.withResolvers<void>();
  #paused = Promise.withResolvers<void>();

  constructor() {
    this.#server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      () => new Response("here", { headers: { connection: "close" } }),
    );
  }

  *objects(): Generator<RawObject> {
    yield serviceOf("asked", this.#nodePort);
    yield sliceOf("asked", [1], { address: "127.0.0.1", port: this.#server.addr.port });
  }

  start(): void {
    this.#state = "running";
    this.#running = this.#ask();
  }

  /** Holds it without a connection open. */
  async pause(): Promise<{ resume(): void }> {
    this.#paused = Promise.withResolvers<void>();
    this.#resume = Promise.withResolvers<void>();
    this.#state = "pausing";
    await this.#paused.promise;
    return { resume: () => this.#resume.resolve() };
  }

  async stop(): Promise<{ readonly asked: number; readonly failed: readonly string[] }> {
    if (this.#state !== "stopped") {
      this.#state = "stopped";
      await this.#running;
      await this.#server.shutdown();
    }
    return { asked: this.#asked, failed: this.#failed };
  }

  async #ask(): Promise<void> {
    while (this.#state !== "stopped") {
      if (this.#state === "pausing") {
        this.#paused.resolve();
        await this.#resume.promise;
        if (this.#state === "pausing") this.#state = "running";
      }
      this.#asked++;
      try {
        const response = await fetch(`http://127.0.0.1:${this.#nodePort}/`);
        if (await response.text() !== "here") this.#failed.push(`status ${response.status}`);
      } catch (error) {
        this.#failed.push(String(error));
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** Files and sockets that a process has open. */
async function openFiles(pid: number): Promise<number> {
  const { stdout } = await new Deno.Command("ls", { args: [`/proc/${pid}/fd`] }).output();
  return new TextDecoder().decode(stdout).trim().split("\n").length;
}

function ratio(value: number, base: number): string {
  return `${(value / base).toFixed(2)} times`;
}

function mib(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(1);
}

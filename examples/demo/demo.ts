/**
 * Shows the main task in one minute: Services from a folder of manifests, served in userspace mode by a
 * plain user, without a cluster. `--keep` leaves everything running until Ctrl-C.
 *
 * @module
 */
import Table from "cli-table3";
import { painter, type Tone } from "../../lib/tools/report.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import { askHttp, askUdp, type DemoServer, startHttpServer, startUdpServer } from "./endpoints.ts";
import { DemoManifests, type DemoService } from "./manifests.ts";
import { type Relay, startRelay } from "./relay.ts";

/** Replaces the first endpoint of `web`. */
const SPARE_ADDRESS = "127.1.0.9";
/** Requests a second while the manifest is edited. */
const LOAD_PER_SECOND = 200;

const unknown = Deno.args.find((argument) => argument !== "--keep");
if (unknown !== undefined) {
  say(`Unknown argument '${unknown}'; the only one is --keep`);
  Deno.exit(2);
}
const keep = Deno.args.length > 0;
const folder = await Deno.makeTempDir({ prefix: "kube-relay-demo-" });
const servers: DemoServer[] = [];
let relay: Relay | undefined;
let exitCode = 1;
try {
  exitCode = await tellStory();
} catch (error) {
  say(`\n${colored("bad", "The demo failed:")} ${error instanceof Error ? error.message : error}`);
  for (const line of relay?.log.slice(-20) ?? []) say(colored("detail", `  ${line}`));
} finally {
  await relay?.stop();
  await Promise.all(servers.map((server) => server.close()));
  await Deno.remove(folder, { recursive: true });
}
Deno.exit(exitCode);

async function tellStory(): Promise<number> {
  const started = performance.now();
  const manifestFolder = `${folder}/manifests`;
  await Deno.mkdir(manifestFolder);
  const manifests = await DemoManifests.copy(new URL("./", import.meta.url), {
    folder: manifestFolder,
    spare: SPARE_ADDRESS,
  });
  for (const service of manifests.services) startEndpoints(service);
  relay = startRelay({ manifests: manifestFolder, folder });
  await waitUntilServed(manifests.services);
  say(
    colored("title", "kube-relay serves examples/demo in userspace mode: no cluster, no root.\n"),
  );
  await showWhoAnswers(manifests);
  await showAffinity(manifests);
  await showRefusal(manifests.service("empty"));
  await showMove(manifests);
  say(`\nDone in ${((performance.now() - started) / 1000).toFixed(1)} s.`);
  if (keep) return await keepRunning(manifests);
  const code = await relay.stop();
  if (code !== 0) throw new Error(`kube-relay ended with exit code ${code}`);
  return 0;
}

function startEndpoints({ name, protocol, endpoints, endpointPort }: DemoService): void {
  endpoints.forEach((address, index) => {
    const start = protocol === "UDP" ? startUdpServer : startHttpServer;
    servers.push(start(`${name}-${index + 1}`, address, endpointPort));
  });
}

/** Waits until every Service with endpoints has answered once. */
async function waitUntilServed(services: readonly DemoService[]): Promise<void> {
  const deadline = performance.now() + 20_000;
  let ended = false;
  relay!.ended.then(() => ended = true);
  for (const service of services) {
    if (service.endpoints.length === 0) continue;
    while (await ask(service).catch(() => undefined) === undefined) {
      if (ended) throw new Error("kube-relay ended before it served anything");
      if (performance.now() > deadline) {
        throw new Error(`Service '${service.name}' did not answer within 20 s`);
      }
      await delay(50);
    }
  }
}

async function showWhoAnswers(manifests: DemoManifests): Promise<void> {
  const table = new Table({ head: ["Service", "Address", "Asked", "Who answered"] });
  for (const service of manifests.services) {
    if (service.endpoints.length === 0) continue;
    const answers = new Map<string, number>();
    for (let i = 0; i < 12; i++) count(answers, await ask(service));
    table.push([service.name, addressOf(service), "12 times", describe(answers)]);
  }
  say(table.toString());
}

async function showAffinity(manifests: DemoManifests): Promise<void> {
  const sticky = manifests.service("sticky");
  const answers = new Map<string, number>();
  for (let i = 0; i < 20; i++) count(answers, await ask(sticky));
  if (answers.size !== 1) throw new Error(`Session affinity was not kept: ${describe(answers)}`);
  say(
    `\n${colored("title", "Session affinity")}: one client asked 'sticky' 20 times, ${
      describe(answers)
    }.`,
  );
}

async function showRefusal(empty: DemoService): Promise<void> {
  try {
    await ask(empty);
  } catch (error) {
    if (error instanceof Deno.errors.ConnectionRefused) {
      say(`${colored("title", "No endpoints")}: 'empty' at ${addressOf(empty)} refuses at once.`);
      return;
    }
    throw error;
  }
  throw new Error("Service 'empty' answered although it has no endpoints");
}

/** Replaces an endpoint while requests run; none may fail. */
async function showMove(manifests: DemoManifests): Promise<void> {
  const web = manifests.service("web");
  const [gone = ""] = web.endpoints;
  servers.push(startHttpServer("web-new", SPARE_ADDRESS, web.endpointPort));
  const load = startLoad(web);
  await delay(700);
  const before = load.takeAnswers();
  await manifests.replaceEndpoint("web", gone, SPARE_ADDRESS);
  await load.waitFor("web-new");
  load.takeAnswers();
  await servers.find(({ name }) => name === "web-1")?.close();
  await delay(700);
  const after = load.takeAnswers();
  const { requests, failures } = await load.stop();
  say(`\n${colored("title", "A manifest is edited")} under ${LOAD_PER_SECOND} requests a second:`);
  const table = new Table({ head: ["When", "Who answered"] });
  table.push(["before: web-1 is an endpoint", describe(before)]);
  table.push(["after: web-new in its place", describe(after)]);
  say(table.toString());
  if (after.has("web-1")) throw new Error("'web-1' still answers after it has left the manifest");
  if (failures.length > 0) {
    throw new Error(`${failures.length} of ${requests} requests failed, the first: ${failures[0]}`);
  }
  say(`${requests} requests, ${colored("good", "0 failed")}.`);
}

interface Load {
  takeAnswers(): Map<string, number>;
  waitFor(name: string): Promise<void>;
  stop(): Promise<{ requests: number; failures: string[] }>;
}

function startLoad(service: DemoService): Load {
  let answers = new Map<string, number>();
  let requests = 0;
  const failures: string[] = [];
  const open = new Set<Promise<void>>();
  const timer = setInterval(() => {
    requests++;
    const one: Promise<void> = ask(service)
      .then((name) => count(answers, name))
      .catch((error) => void failures.push(String(error)))
      .finally(() => open.delete(one));
    open.add(one);
  }, 1000 / LOAD_PER_SECOND);
  return {
    takeAnswers() {
      const taken = answers;
      answers = new Map();
      return taken;
    },
    async waitFor(name) {
      const deadline = performance.now() + 10_000;
      while (!answers.has(name)) {
        if (performance.now() > deadline) throw new Error(`'${name}' did not answer within 10 s`);
        await delay(10);
      }
    },
    async stop() {
      clearInterval(timer);
      await Promise.all(open);
      return { requests, failures };
    },
  };
}

async function keepRunning(manifests: DemoManifests): Promise<number> {
  say("\nEverything keeps running; Ctrl-C ends it. Try:");
  for (const service of manifests.services) {
    if (service.protocol === "TCP") {
      say(`  curl http://${addressOf(service)}/    # ${service.name}`);
    }
  }
  const deno = `npx -y deno@${Deno.version.deno}`;
  say(`  ${deno} task status --control-socket=${relay!.controlSocket}`);
  say(`  edit the files in ${manifests.folder}`);
  const interrupted = new Promise<number>((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      Deno.addSignalListener(signal, () => resolve(0));
    }
  });
  return await Promise.race([interrupted, relay!.ended]);
}

function ask(service: DemoService): Promise<string> {
  const { clusterIp, port, protocol } = service;
  return protocol === "UDP" ? askUdp(clusterIp, port) : askHttp(clusterIp, port);
}

function addressOf({ clusterIp, port }: DemoService): string {
  return formatHostPort(clusterIp, port);
}

function count(answers: Map<string, number>, name: string): void {
  answers.set(name, (answers.get(name) ?? 0) + 1);
}

function describe(answers: ReadonlyMap<string, number>): string {
  return [...answers].sort().map(([name, times]) => `${name} ×${times}`).join(", ");
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function say(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${text}\n`));
}

function colored(tone: Tone, text: string): string {
  return painter(!Deno.noColor)({ tone, text });
}

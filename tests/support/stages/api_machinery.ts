/**
 * The real API machinery of `tests/apiserver` as a {@linkcode ConformanceServer}: one etcd and one
 * API server, each a process of its own, with their files in a folder that goes away with them.
 */
import type { ConformanceServer, PemPair, RawObject } from "../../conformance/server.ts";
import { ApiWriter } from "../drivers/api_writer.ts";
import { replaceFile } from "../builders/kubeconfig_file.ts";
import { type EtcdProgram, startEtcd } from "../drivers/etcd_process.ts";
import { eventually } from "../eventually.ts";
import { runTool } from "../drivers/run_tool.ts";
import { ServerProcess } from "../drivers/server_process.ts";
import { unusedPort } from "../drivers/unused_port.ts";

/** The user that the client under test is. */
const CLIENT_USER = "kube-relay";

/** Tokens and certificates of one API machinery, in files that its server reads again when they change. */
class MachineryCredentials {
  /** The token of a user with all rights; never rotated. */
  readonly adminToken: string = crypto.randomUUID();
  /** Lines of token, user and uid. */
  readonly tokenFile: string;
  /** Folder of both authorities and of the server's certificate. */
  readonly folder: string;
  readonly #program: string;
  #token = "";

  /** `program` is the built one of `tests/apiserver`. */
  constructor(program: string, folder: string) {
    this.#program = program;
    this.tokenFile = `${folder}/tokens`;
    this.folder = `${folder}/certificates`;
  }

  /** The token of the client under test. */
  get token(): string {
    return this.#token;
  }

  /** Gives the client under test a new token; the former one is refused from the next request on. */
  async rotateToken(): Promise<string> {
    this.#token = crypto.randomUUID();
    const lines = [`${this.#token},${CLIENT_USER},1`, `${this.adminToken},admin,2`, ""];
    await replaceFile(this.tokenFile, lines.join("\n"));
    return this.#token;
  }

  /**
   * Makes a client certificate. With a new authority, certificates of the former one are refused
   * soon after.
   */
  async issueCertificate(
    { newAuthority = false }: { readonly newAuthority?: boolean } = {},
  ): Promise<PemPair> {
    const out = `${this.folder}/${crypto.randomUUID()}`;
    await runTool(this.#program, [
      "certificate",
      `--certificates=${this.folder}`,
      `--user=${CLIENT_USER}`,
      `--new-authority=${newAuthority}`,
      `--out=${out}`,
    ]);
    return {
      cert: await Deno.readTextFile(`${out}.crt`),
      key: await Deno.readTextFile(`${out}.key`),
    };
  }

  /** The CA of the server's certificate, PEM. There once the server has started. */
  serverAuthority(): Promise<string> {
    return Deno.readTextFile(`${this.folder}/server-ca.crt`);
  }

  /** The CA of client certificates, PEM. */
  clientAuthority(): Promise<string> {
    return Deno.readTextFile(`${this.folder}/client-ca.crt`);
  }
}

/** Copies a folder with everything in it; links are followed. */
async function copyFolder(from: string, to: string): Promise<void> {
  await Deno.mkdir(to, { recursive: true });
  for await (const { name, isDirectory } of Deno.readDir(from)) {
    if (isDirectory) await copyFolder(`${from}/${name}`, `${to}/${name}`);
    else await Deno.copyFile(`${from}/${name}`, `${to}/${name}`);
  }
}

/** The behaviour of the API machinery. */
export interface ApiMachineryOptions {
  /** The built program of `tests/apiserver`. */
  readonly program: string;
  /** For the names of tests. @default {"k8s.io/apiserver"} */
  readonly name?: string;
  /** Another etcd than the embedded one: a program on the PATH. */
  readonly etcdProgram?: string;
  /** Knows `spec.clusterIP` as a field selector. @default {true} */
  readonly clusterIpSelector?: boolean;
  /** Allows streaming lists. @default {true} */
  readonly watchList?: boolean;
  /** Whether the etcd can serve streaming lists, which ones before 3.4.25 and 3.5.8 can't. @default {true} */
  readonly etcdReportsProgress?: boolean;
  /** Resources that the client under test is refused with 403 at first. */
  readonly forbiddenResources?: readonly string[];
}

/** Starts both processes; resolves when the API server is ready. */
export async function startApiMachinery(options: ApiMachineryOptions): Promise<ApiMachinery> {
  const folder = await Deno.makeTempDir({ prefix: "kube-relay-apiserver-" });
  const machinery = new ApiMachinery(options, { folder, ports: [unusedPort(), unusedPort()] });
  try {
    await machinery.start();
  } catch (error) {
    await machinery[Symbol.asyncDispose]();
    throw error;
  }
  return machinery;
}

/** A running API machinery. */
export class ApiMachinery implements ConformanceServer {
  readonly name: string;
  readonly capabilities: ConformanceServer["capabilities"];
  readonly url: string;
  readonly #options: ApiMachineryOptions;
  readonly #folder: string;
  readonly #etcdProgram: EtcdProgram;
  readonly #credentials: MachineryCredentials;
  #ca = "";
  #certificate: PemPair | undefined;
  #etcd: ServerProcess | undefined;
  #api: ServerProcess | undefined;
  #admin: ApiWriter | undefined;

  constructor(
    options: ApiMachineryOptions,
    { folder, ports: [apiPort, etcdPort] }: {
      readonly folder: string;
      readonly ports: readonly [number, number];
    },
  ) {
    this.name = options.name ?? "k8s.io/apiserver";
    this.capabilities = {
      streamingLists: options.watchList !== false && options.etcdReportsProgress !== false,
      clusterIpSelector: options.clusterIpSelector !== false,
    };
    this.url = `https://127.0.0.1:${apiPort}`;
    this.#options = options;
    this.#folder = folder;
    this.#credentials = new MachineryCredentials(options.program, folder);
    this.#etcdProgram = {
      ours: options.program,
      ...(options.etcdProgram === undefined ? {} : { foreign: options.etcdProgram }),
      folder,
      port: etcdPort,
    };
  }

  get ca(): string {
    return this.#ca;
  }

  /** Starts both processes. */
  async start(): Promise<void> {
    await this.#credentials.rotateToken();
    await this.forbid(this.#options.forbiddenResources ?? []);
    this.#etcd = await startEtcd(this.#etcdProgram);
    await this.restartApi();
    this.#ca = await this.#credentials.serverAuthority();
    this.#certificate = await this.#credentials.issueCertificate();
    const token = () => this.#credentials.adminToken;
    this.#admin = new ApiWriter({ url: this.url, ca: this.#ca, token });
    // Until its authority is read, a server refuses a client's certificate with 401.
    await this.#untilAccepted(this.#certificate, true);
  }

  token(): string {
    return this.#credentials.token;
  }

  rotateToken(): Promise<string> {
    return this.#credentials.rotateToken();
  }

  clientCertificate(): PemPair {
    return required(this.#certificate);
  }

  async rotateClientCertificate(): Promise<PemPair> {
    const former = this.clientCertificate();
    this.#certificate = await this.#credentials.issueCertificate({ newAuthority: true });
    await this.#untilAccepted(former, false);
    await this.#untilAccepted(this.#certificate, true);
    return this.#certificate;
  }

  /** The CA of client certificates, PEM; it has not signed the server's. */
  clientAuthority(): Promise<string> {
    return this.#credentials.clientAuthority();
  }

  create(object: RawObject): Promise<RawObject> {
    return this.admin.create(object);
  }

  update(object: RawObject): Promise<RawObject> {
    return this.admin.update(object);
  }

  delete(object: RawObject): Promise<void> {
    return this.admin.delete(object);
  }

  /** Refuses the client under test these resources with 403, and no others, from the next request on. */
  forbid(resources: readonly string[]): Promise<void> {
    const words = resources.map((resource) => `${CLIENT_USER}=${resource}`);
    return replaceFile(this.#forbiddenFile, words.join("\n"));
  }

  /** A client that may do everything, for many writes at once. */
  get admin(): ApiWriter {
    return required(this.#admin);
  }

  /**
   * Forgets the history. The API server is restarted for it, since its watch cache would go on
   * serving versions that etcd has forgotten; and a version of its own comes first, since a restarted
   * cache still knows the newest one.
   */
  async compact(): Promise<void> {
    const marker = {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: `compaction-${crypto.randomUUID()}` },
    };
    await this.create(marker);
    await this.delete(marker);
    await this.compactEtcd();
    await this.killApi();
    await this.restartApi();
  }

  /** The process of the API server. */
  get apiPid(): number {
    return required(this.#api).pid;
  }

  async killApi(): Promise<void> {
    await this.#api?.kill();
    this.#api = undefined;
  }

  async restartApi(): Promise<void> {
    const { program, clusterIpSelector = true, watchList = true } = this.#options;
    this.#api = await ServerProcess.start({
      program,
      args: [
        "apiserver",
        `--etcd=${this.#etcdUrl}`,
        `--certificates=${this.#credentials.folder}`,
        `--tokens=${this.#credentials.tokenFile}`,
        `--port=${new URL(this.url).port}`,
        `--service-field-selectors=${clusterIpSelector}`,
        `--watch-list=${watchList}`,
        `--forbidden=${this.#forbiddenFile}`,
      ],
      log: `${this.#folder}/apiserver.log`,
    });
  }

  /** Makes etcd forget its history. The API server's own memory is another matter: see {@linkcode compact}. */
  async compactEtcd(): Promise<void> {
    await runTool(this.#options.program, ["compact", `--etcd=${this.#etcdUrl}`]);
  }

  /** Stops the API server from running; its connections stay open and say nothing. */
  freezeApi(): void {
    required(this.#api).freeze();
  }

  /** Lets it run again. */
  thawApi(): void {
    required(this.#api).thaw();
  }

  async killEtcd(): Promise<void> {
    await this.#etcd?.kill();
    this.#etcd = undefined;
  }

  async restartEtcd(): Promise<void> {
    this.#etcd = await startEtcd(this.#etcdProgram);
  }

  /** Copies etcd's data while etcd is away; {@linkcode restoreEtcd} puts the copy back, as from a backup. */
  async backUpEtcd(): Promise<void> {
    await this.killEtcd();
    await copyFolder(`${this.#folder}/etcd`, `${this.#folder}/backup`);
    await this.restartEtcd();
  }

  /** Starts etcd again with its content at the time of {@linkcode backUpEtcd}. */
  async restoreEtcd(): Promise<void> {
    await this.killEtcd();
    await Deno.remove(`${this.#folder}/etcd`, { recursive: true });
    await copyFolder(`${this.#folder}/backup`, `${this.#folder}/etcd`);
    await this.restartEtcd();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#admin?.[Symbol.dispose]();
    await this.killApi();
    await this.killEtcd();
    await Deno.remove(this.#folder, { recursive: true });
  }

  get #forbiddenFile(): string {
    return `${this.#folder}/forbidden`;
  }

  get #etcdUrl(): string {
    return `http://127.0.0.1:${this.#etcdProgram.port}`;
  }

  async #untilAccepted(certificate: PemPair, accepted: boolean): Promise<void> {
    using client = new ApiWriter({ url: this.url, ca: this.#ca, certificate });
    await eventually(
      `a client certificate is ${accepted ? "accepted" : "refused"}`,
      async () => (await client.ready()) === accepted,
    );
  }
}

function required<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("Cannot use the API machinery: it is not running");
  return value;
}

/** A containerd of a test, and containers in it as the kubelet would start them from a pod. */
import { LineProcess } from "../support/drivers/line_process.ts";
import { runTool } from "../support/drivers/run_tool.ts";
import { eventually } from "../support/eventually.ts";
import { program, type Requirement, ROOT } from "../support/requirement.ts";
import type { Namespace } from "../support/stages/netns.ts";

/** The requirements of {@linkcode Containerd}. */
export const CONTAINERD_REQUIREMENTS: readonly Requirement[] = [
  ROOT,
  ...["containerd", "ctr", "runc", "unshare"].map(program),
];

/** The capabilities that `ctr` gives without being asked, as container engines do. */
const DEFAULT_CAPABILITIES =
  "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE"
    .split(" ");

/** The fields of a container in a manifest that are obeyed. */
export interface PodContainer {
  readonly name: string;
  readonly image: string;
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string }[];
  readonly securityContext: {
    readonly privileged?: boolean;
    readonly readOnlyRootFilesystem?: boolean;
    readonly allowPrivilegeEscalation?: boolean;
    readonly capabilities?: { readonly drop: readonly string[]; readonly add: readonly string[] };
  };
  readonly volumeMounts: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly readOnly?: boolean;
  }[];
}

/** The fields of a pod in a manifest that are obeyed. */
export interface Pod {
  readonly containers: readonly PodContainer[];
  readonly initContainers?: readonly PodContainer[];
  readonly volumes: readonly {
    readonly name: string;
    readonly hostPath?: { readonly path: string; readonly type?: string };
  }[];
}

/** The node on which a container runs. */
export interface ContainerNode {
  /** Stands for the network of the node. */
  readonly network: Namespace;
  /** A folder that stands for `/` of the node, and has each volume that is no path of it. */
  readonly root: string;
  /** The values of the variables that the pod takes from its fields. */
  readonly env: Readonly<Record<string, string>>;
}

/** A running containerd. Its mounts, containers and files end with it, even if the test is killed. */
export class Containerd implements AsyncDisposable {
  readonly #folder: string;
  readonly #process: LineProcess;

  private constructor(folder: string, process: LineProcess) {
    this.#folder = folder;
    this.#process = process;
  }

  static async start(): Promise<Containerd> {
    const folder = await Deno.makeTempDir({ prefix: "containerd-" });
    const config = `version = 2
root = "${folder}/root"
state = "${folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "${folder}/containerd.sock"
`;
    await Deno.writeTextFile(`${folder}/config.toml`, config);
    // A slave sees the network namespaces that are made later, and hides its own mounts.
    const script = "mkdir -p /run/containerd && mount -t tmpfs tmpfs /run/containerd && " +
      'exec containerd --config "$1"';
    const process = new LineProcess("unshare", [
      ..."--mount --propagation slave --pid --fork --kill-child --mount-proc".split(" "),
      ...["sh", "-c", script, "sh", `${folder}/config.toml`],
    ]);
    const containerd = new Containerd(folder, process);
    try {
      await eventually("containerd answers", async () => {
        if (process.hasEnded) throw new Error(`containerd has ended: ${process.errors}`);
        return await containerd.ctr("version").then(() => true, () => false);
      });
      return containerd;
    } catch (error) {
      await containerd[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Where `ctr` makes the pipes of containers. */
  get fifos(): string {
    return `${this.#folder}/fifos`;
  }

  /** Runs a command of `ctr` and returns its output. */
  async ctr(...args: readonly string[]): Promise<string> {
    return await runTool("ctr", this.#ctr(args));
  }

  /** Starts a container of a pod on a node. Its output is the output of the process. */
  async run(pod: Pod, container: PodContainer, node: ContainerNode): Promise<Container> {
    const id = `${container.name}-${node.network.name}`;
    const {
      privileged = false,
      readOnlyRootFilesystem = false,
      allowPrivilegeEscalation = true,
      capabilities = { drop: [], add: [] },
    } = container.securityContext;
    const dropped = capabilities.drop.includes("ALL") ? DEFAULT_CAPABILITIES : capabilities.drop;
    const capability = (name: string) => `CAP_${name}`;
    const mounts = await Promise.all(
      container.volumeMounts.map(async ({ name, mountPath, readOnly = false }) => {
        const { hostPath } = pod.volumes.find((volume) => volume.name === name)!;
        const source = `${node.root}${hostPath?.path ?? `/${name}`}`;
        if (hostPath?.type === "FileOrCreate") {
          await Deno.mkdir(source.slice(0, source.lastIndexOf("/")), { recursive: true });
          await Deno.writeTextFile(source, "", { append: true });
        } else await Deno.mkdir(source, { recursive: true });
        const options = `rbind:${readOnly ? "ro" : "rw"}`;
        return `--mount=type=bind,src=${source},dst=${mountPath},options=${options}`;
      }),
    );
    const env = (container.env ?? []).map(({ name }) => `--env=${name}=${node.env[name]}`);
    const words = [...container.command ?? ["/usr/local/bin/kube-relay"], ...container.args ?? []]
      .map((word) => word.replaceAll(/\$\((\w+)\)/g, (_, name) => node.env[name]!));
    const process = new LineProcess(
      "ctr",
      this.#ctr([
        ...["run", "--rm", `--fifo-dir=${this.fifos}`, "--cgroup="],
        `--with-ns=network:/run/netns/${node.network.name}`,
        ...(privileged ? ["--privileged"] : []),
        ...(readOnlyRootFilesystem ? ["--read-only"] : []),
        ...(allowPrivilegeEscalation ? ["--allow-new-privs"] : []),
        ...(privileged ? [] : dropped.filter((name) => !capabilities.add.includes(name)))
          .map((name) => `--cap-drop=${capability(name)}`),
        ...capabilities.add.map((name) => `--cap-add=${capability(name)}`),
        ...[...env, ...mounts, container.image, id, ...words],
      ]),
    );
    return new Container(this, id, process);
  }

  #ctr(args: readonly string[]): string[] {
    return ["--address", `${this.#folder}/containerd.sock`, ...args];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.kill();
    await Deno.remove(this.#folder, { recursive: true });
  }
}

/** A container that was started. It ends with its containerd, if not before. */
export class Container {
  readonly #containerd: Containerd;
  readonly #id: string;
  readonly process: LineProcess;
  #calls = 0;

  constructor(containerd: Containerd, id: string, process: LineProcess) {
    this.#containerd = containerd;
    this.#id = id;
    this.process = process;
  }

  /** Runs a command in the container, as `kubectl exec` does, and returns its output. */
  async exec(...words: readonly string[]): Promise<string> {
    const call = `call-${++this.#calls}`;
    const options = [`--fifo-dir=${this.#containerd.fifos}`, `--exec-id=${call}`];
    return await this.#containerd.ctr("tasks", "exec", ...options, this.#id, ...words);
  }

  /** Ends it as the kubelet does; returns its exit code. */
  async stop(): Promise<number> {
    await this.#containerd.ctr("tasks", "kill", "--signal", "SIGTERM", this.#id);
    return (await this.process.status()).code;
  }
}

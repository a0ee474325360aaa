/** HAProxy and nginx as peers, in front of kube-relay and behind it. */
import { assertEquals } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import { testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import { readToEnd, TcpServer, writeFully } from "../../../tests/support/drivers/tcp_peers.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { isMissing, program } from "../../../tests/support/requirement.ts";
import { TestUserspaceBackend } from "../../../tests/support/stages/userspace_backend.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";

const VIP = "127.96.18.1";
const HOST = "127.0.0.1";
const ignore = isMissing("PROXY protocol with peers", [program("haproxy"), program("nginx")]);

interface Peer {
  readonly name: string;
  readonly command: string;
  readonly args: (path: string) => readonly string[];
  readonly configuration: (ports: { listen: number; to: number }, folder: string) => string;
}

const HAPROXY = { command: "haproxy", args: (path: string) => ["-db", "-q", "-f", path] };
const NGINX = { command: "nginx", args: (path: string) => ["-c", path] };

function haproxy(mode: string, lines: string): string {
  return `defaults
  mode ${mode}
  timeout connect 5s
  timeout client 5s
  timeout server 5s
listen test
  ${lines}
`;
}

function nginx(folder: string, block: string): string {
  return `load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
master_process off;
pid ${folder}/nginx.pid;
error_log ${folder}/nginx.log crit;
events {}
${block}
`;
}

/** Servers that accept a header, and answer with the addresses that it carried. */
const BEHIND: readonly Peer[] = [
  {
    name: "HAProxy",
    ...HAPROXY,
    configuration: ({ listen }) =>
      haproxy(
        "http",
        `bind ${HOST}:${listen} accept-proxy
  http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port]"`,
      ),
  },
  {
    name: "nginx",
    ...NGINX,
    configuration: ({ listen }, folder) =>
      nginx(
        folder,
        `http {
  access_log off;
  client_body_temp_path ${folder}/b; proxy_temp_path ${folder}/p; fastcgi_temp_path ${folder}/f;
  uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
  server {
    listen ${HOST}:${listen} proxy_protocol;
    location / {
      return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port";
    }
  }
}`,
      ),
  },
];

/** Proxies that send a header to kube-relay. */
const IN_FRONT: readonly Peer[] = [
  ...["send-proxy", "send-proxy-v2"].map((option): Peer => ({
    name: `HAProxy with ${option}`,
    ...HAPROXY,
    configuration: ({ listen, to }) =>
      haproxy("tcp", `bind ${HOST}:${listen}\n  server relay ${VIP}:${to} ${option}`),
  })),
  {
    name: "nginx stream",
    ...NGINX,
    configuration: ({ listen, to }, folder) =>
      nginx(
        folder,
        `stream {
  server { listen ${HOST}:${listen}; proxy_pass ${VIP}:${to}; proxy_protocol on; proxy_half_close on; }
}`,
      ),
  },
];

/** Runs a test while a peer listens. */
async function withPeer(
  { command, args, configuration }: Peer,
  ports: { readonly listen: number; readonly to: number },
  test: () => Promise<void>,
): Promise<void> {
  await withFolder(async (folder) => {
    const path = `${folder}/peer.conf`;
    await Deno.writeTextFile(path, configuration(ports, folder));
    await using peer = new Deno.Command(command, {
      args: [...args(path)],
      stdin: "null",
      stdout: "null",
      stderr: "inherit",
    }).spawn();
    await eventually(`${command} listens`, async () => {
      try {
        (await Deno.connect({ hostname: HOST, port: ports.listen })).close();
        return true;
      } catch {
        return false;
      }
    });
    await test();
    peer.kill("SIGTERM");
    await peer.status;
  });
}

function planOf(edge: EdgeSettings, { port, to }: { port: number; to: string }) {
  return testServicePlan({ clusterIp: VIP, port, to: [to], edge });
}

/** Sends text, and returns the own port with the whole answer. */
async function exchange(
  address: { readonly hostname: string; readonly port: number },
  text: string,
): Promise<{ readonly port: number; readonly answer: string }> {
  using connection = await Deno.connect(address);
  await writeFully(connection, new TextEncoder().encode(text));
  await connection.closeWrite();
  const { text: answer } = await readToEnd(connection);
  return { port: (connection.localAddr as Deno.NetAddr).port, answer };
}

for (const peer of BEHIND) {
  for (const sendProxy of ["v1", "v2"] as const) {
    Deno.test(`${peer.name} reads the client's address from a header ${sendProxy} of kube-relay`, {
      ignore,
    }, async () => {
      const [listen, to] = [unusedPort(), unusedPort()];
      await withPeer(peer, { listen, to }, async () => {
        await using test = new TestUserspaceBackend();
        await test.sync([planOf({ sendProxy }, { port: to, to: `${HOST}:${listen}` })]);
        using connection = await Deno.connect({ hostname: VIP, port: to });
        const { port } = connection.localAddr as Deno.NetAddr;
        await writeFully(
          connection,
          new TextEncoder().encode("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        );
        const { text } = await readToEnd(connection);
        assertEquals(text.split("\r\n\r\n")[1], `${HOST} ${port} ${VIP} ${to}`);
      });
    });
  }
}

for (const peer of IN_FRONT) {
  Deno.test(`kube-relay reads the client's address from a header of ${peer.name}`, {
    ignore,
  }, async () => {
    const [listen, to] = [unusedPort(), unusedPort()];
    await using endpoint = TcpServer.start(async (connection) => {
      const { text } = await readToEnd(connection);
      await writeFully(connection, new TextEncoder().encode(text));
    });
    await using test = new TestUserspaceBackend();
    const edge = { acceptProxyFrom: [parseCidr("127.0.0.0/8")], sendProxy: "v1" } as const;
    await test.sync([planOf(edge, { port: to, to: endpoint.endpoint })]);
    await withPeer(peer, { listen, to }, async () => {
      const { port, answer } = await exchange({ hostname: HOST, port: listen }, "hello");
      const header = `PROXY TCP4 ${HOST} ${HOST} ${port} ${listen}\r\n`;
      assertEquals(answer, `${header}hello`);
    });
    assertEquals(test.logger.lines, []);
  });
}

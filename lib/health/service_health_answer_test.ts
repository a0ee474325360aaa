import { assertEquals } from "@std/assert";
import { answerServiceHealth } from "./service_health_server.ts";

const service = { namespace: "ns", name: "svc" };

Deno.test("answerServiceHealth() writes upstream's body, tabs and all", async () => {
  const answer = answerServiceHealth({ service, localEndpoints: 2, proxyHealthy: true });
  assertEquals(
    await answer.text(),
    '{\n\t"service": {\n\t\t"namespace": "ns",\n\t\t"name": "svc"\n\t},\n' +
      '\t"localEndpoints": 2,\n\t"serviceProxyHealthy": true\n}',
  );
});

Deno.test("answerServiceHealth() wants an endpoint and a proxy that keeps up", () => {
  const rows = [
    { localEndpoints: 1, proxyHealthy: true, status: 200 },
    { localEndpoints: 0, proxyHealthy: true, status: 503 },
    { localEndpoints: 1, proxyHealthy: false, status: 503 },
    { localEndpoints: 0, proxyHealthy: false, status: 503 },
  ];
  for (const { status, ...health } of rows) {
    const answer = answerServiceHealth({ service, ...health });
    assertEquals(answer.status, status, JSON.stringify(health));
    const weight = answer.headers.get("x-load-balancing-endpoint-weight");
    assertEquals(weight, String(health.localEndpoints));
  }
});

Deno.test("answerServiceHealth() reports nothing about a deleted Service", async () => {
  const answer = answerServiceHealth(undefined);
  assertEquals([answer.status, await answer.text()], [200, ""]);
});

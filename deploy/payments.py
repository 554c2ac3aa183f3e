"""A payment service that is not safe to send twice: each POST takes money. For docker-compose.yml."""

import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAYMENTS = []


class Payments(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = json.loads(body or b"{}")
        payment = {
            "payment": len(PAYMENTS) + 1,
            "order_no": str(request.get("order_no")),
            "amount": request.get("amount"),
            "status": "paid",
        }
        PAYMENTS.append(payment)
        # {"seconds": 20} takes longer than the gateway waits: the money has moved, and nobody has heard of it.
        time.sleep(float(request.get("seconds", 0)))
        self.answer(201, payment)

    def do_GET(self):
        prefix = "/v1/payments/by-order/"
        if not self.path.startswith(prefix):
            return self.answer(200, {"payments": PAYMENTS})
        of_order = [payment for payment in PAYMENTS if payment["order_no"] == self.path[len(prefix):]]
        return self.answer(200, of_order[0]) if of_order else self.answer(404, {"status": "unknown"})

    def answer(self, status, value):
        body = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("", int(os.environ.get("PORT", "9090"))), Payments).serve_forever()

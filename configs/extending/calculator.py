"""A tool of one's own: `python3 calculator.py 9000` serves arithmetic at http://127.0.0.1:9000."""
import ast, json, operator, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.USub: operator.neg}

def value(node):
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return OPERATIONS[type(node.op)](value(node.operand))
    return OPERATIONS[type(node.op)](value(node.left), value(node.right))

def calculate(text):
    try:
        return str(value(ast.parse(text[:200], mode="eval").body))
    except Exception:  # whatever a model may write
        return "This cannot be computed: " + text[:200]

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        reply = json.dumps({"result": [[{"contents": calculate(q)}] for q in queries]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

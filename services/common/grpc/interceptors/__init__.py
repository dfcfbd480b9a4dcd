"""Server interceptors, one a file, in the order they wrap a call (outermost first)."""

from services.common.grpc.interceptors.access_log import AccessLogInterceptor
from services.common.grpc.interceptors.auth import AuthInterceptor
from services.common.grpc.interceptors.base import Interceptor, InterceptorChain, RpcCall
from services.common.grpc.interceptors.deadline import DeadlineInterceptor
from services.common.grpc.interceptors.degradations import DegradationsInterceptor
from services.common.grpc.interceptors.drain import DrainInterceptor
from services.common.grpc.interceptors.errors import ErrorsInterceptor
from services.common.grpc.interceptors.metrics import MetricsInterceptor
from services.common.grpc.interceptors.request_id import RequestIdInterceptor
from services.common.grpc.interceptors.tracing import TracingInterceptor
from services.common.grpc.interceptors.validation import ValidationInterceptor

__all__ = [
    "AccessLogInterceptor",
    "AuthInterceptor",
    "DeadlineInterceptor",
    "DegradationsInterceptor",
    "DrainInterceptor",
    "ErrorsInterceptor",
    "Interceptor",
    "InterceptorChain",
    "MetricsInterceptor",
    "RequestIdInterceptor",
    "RpcCall",
    "TracingInterceptor",
    "ValidationInterceptor",
]
